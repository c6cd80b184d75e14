#include "training/settings/options.h"

namespace geminid::trainer {

const char* DataFlagOf(const TrainOptions& options) {
  if (!options.images.empty()) return "--images";
  return options.shards.empty() ? "--text" : "--shards";
}

uint64_t SequencesPerStep(const TrainOptions& options) {
  if (options.follows_noise) return options.batch * options.follows_noise->least;
  return options.batch * static_cast<uint64_t>(options.zero.accumulate);
}

int RanksOf(const TrainOptions& options, int launched) {
  if (launched > 1) return launched;
  return options.ranks.value_or(options.parallel.least_ranks());
}

const char* Name(zero::Placement placement) {
  switch (placement) {
    case zero::Placement::kDevice:
      return "device";
    case zero::Placement::kCpu:
      return "cpu";
    case zero::Placement::kAuto:
      return "auto";
  }
  return "unknown";
}

const char* Name(zero::DataType data_type) {
  return data_type == zero::DataType::kBFloat16 ? "bf16" : "fp32";
}

zero::DataType NormType(const TrainOptions& options) {
  return options.model.fp32_norms ? zero::DataType::kFloat32 : options.zero.data_type;
}

const char* Name(zero::UpdateTime update) {
  return update == zero::UpdateTime::kInBackward ? "backward" : "step";
}

}  // namespace geminid::trainer
