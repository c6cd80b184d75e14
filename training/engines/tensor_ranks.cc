#include "training/engines/tensor_ranks.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "training/engines/connect_gpus.h"
#include "training/models/fine_tuning.h"
#include "training/nn/gpu_axis_ranks.h"
#include "training/settings/tensor_share.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kPieceElements = uint64_t{1} << 16;  // of a gradient that is read

std::vector<zero::Parameter> Parameters(const TensorParameters& parameters) {
  std::vector<zero::Parameter> made;
  for (const TensorBlock& block : parameters.blocks) made.push_back(AsParameter(block.spec));
  return made;
}

// Of the gradient of what this rank's shard has of a block.
absl::StatusOr<double> SquaresOf(zero::Engine& engine, zero::ParameterId id) {
  double squares = 0;
  std::vector<float> values;
  for (const zero::ShardRange& range : engine.ShardOf(id)) {
    for (uint64_t at = 0; at < range.elements; at += kPieceElements) {
      values.resize(std::min(kPieceElements, range.elements - at));
      GEMINID_RETURN_IF_ERROR(engine.ReadGradient(id, range.offset + at, values));
      for (const float value : values) squares += double{value} * value;
    }
  }
  return squares;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorRanks>> TensorRanks::Connect(
    const TrainOptions& options, const ModelPart& part, const collectives::Mesh& mesh,
    collectives::Communicator& world) {
  const collectives::TensorGrid grid = GridOf(options.parallel);
  std::unique_ptr<TensorRanks> made(new TensorRanks(options.model, grid));
  GEMINID_ASSIGN_OR_RETURN(made->ranks_, mesh.Connect(world, {kTensorAxis}));
  const ModelConfig& model = options.model;
  GEMINID_ASSIGN_OR_RETURN(made->part_,
                           MakeTensorParameters(model, part, grid, made->ranks_->Rank()));
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    GEMINID_ASSIGN_OR_RETURN(TensorParameters theirs,
                             MakeTensorParameters(model, WholeModel(model), grid, rank));
    made->whole_.push_back(std::move(theirs));
  }
  return made;
}

absl::StatusOr<std::unique_ptr<Transformer>> TensorRanks::MakeModel(zero::DataType data_type,
                                                                    const MicroBatchShape& shape,
                                                                    const SequenceSlice& pieces,
                                                                    const GridPlace& place) {
  collectives::ConnectDevices connect;
  if (place.queue != nullptr) {
    connect = [&](collectives::Communicator& axis) { return ConnectAxis(place, axis); };
  }
  GEMINID_ASSIGN_OR_RETURN(groups_, collectives::TensorGroups::Connect(grid_, *ranks_, connect));
  std::optional<TensorGpu> gpu;
  if (place.queue != nullptr) {
    GEMINID_ASSIGN_OR_RETURN(ranks_on_gpus_, ConnectAxis(place, *ranks_));
    gpu.emplace(TensorGpu{.math = place.math, .queue = *place.queue, .ranks = *ranks_on_gpus_});
  }
  return MakeTensorTransformer(config_, data_type, shape, part_,
                               {.groups = *groups_,
                                .ranks = *ranks_,
                                .threads = place.threads,
                                .pieces = pieces,
                                .gpu = gpu});
}

absl::StatusOr<std::unique_ptr<collectives::AxisRanks>> TensorRanks::ConnectAxis(
    const GridPlace& place, collectives::Communicator& ranks) {
  std::unique_ptr<collectives::Communicator> devices;
  if (ranks.WorldSize() > 1) {
    GEMINID_ASSIGN_OR_RETURN(devices, trainer::ConnectGpus(place.device, ranks, &adds_up_by_));
  }
  return std::make_unique<GpuAxisRanks>(ranks, std::move(devices), *place.queue, place.memory);
}

absl::Status TensorRanks::CheckPlaces(bool on_gpu) {
  std::vector<int32_t> all = {on_gpu ? 1 : 0};
  GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(all, all, collectives::ReduceOp::kSum));
  if (all[0] == 0 || all[0] == ranks_->WorldSize()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--parallel: ", ranks_->WorldSize(), " ranks share layers, and ", all[0],
      " of them would compute on a GPU, the rest on the host; give --device cuda, or the number of "
      "a device that all share"));
}

absl::Status TensorRanks::ConnectGpus(device::Device* device) {
  GEMINID_ASSIGN_OR_RETURN(devices_, trainer::ConnectGpus(device, *ranks_, &adds_up_by_));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Transformer>> TensorRanks::MakeShare(zero::DataType data_type,
                                                                    const SharePlace& place) {
  const ModelConfig share = ConfigOfShare(config_, grid_.ranks());
  ModelParameters parameters = ParametersOfBlocks(share, part_);
  share_ =
      std::make_unique<LayerShare>(config_, parameters, ranks_.get(), devices_.get(), place.memory);
  const bool on_gpu = place.math.memory() == ModelKernels::Memory::kDevice;
  return MakeTransformerShare(share, data_type, std::move(parameters), share_.get(),
                              Tiling::Of(share, on_gpu), place.threads, place.math, place.cut);
}

std::vector<zero::Parameter> TensorRanks::PartBlocks() const {
  std::vector<zero::Parameter> blocks = Parameters(part_);
  const std::vector<ParameterSpec> of_part = MakeParameters(config_, part_.part).specs;
  const std::vector<ParameterSpec> of_model = MakeParameters(config_).specs;
  for (size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].counts = part_.blocks[i].keeps;
    std::vector<zero::TensorPiece>& pieces = blocks[i].pieces.emplace();
    for (const BlockRectangle& piece : part_.blocks[i].pieces) {
      const std::string& name = of_part[static_cast<size_t>(piece.whole)].name;
      const auto tensor = std::ranges::find(of_model, name, &ParameterSpec::name);
      pieces.push_back({.tensor = static_cast<uint32_t>(tensor - of_model.begin()),
                        .rows = piece.rows,
                        .columns = piece.columns,
                        .tensor_first = piece.whole_first,
                        .tensor_stride = piece.whole_stride,
                        .first = piece.block_first,
                        .stride = piece.block_stride});
    }
  }
  return blocks;
}

std::vector<zero::Parameter> TensorRanks::ModelBlocks() const {
  return Parameters(whole_[static_cast<size_t>(ranks_->Rank())]);
}

std::unique_ptr<TensorState> TensorRanks::JoinState(zero::ModelState* inner) const {
  return std::make_unique<TensorState>(config_, whole_, inner, ranks_.get());
}

absl::StatusOr<double> TensorRanks::Squares(zero::Engine& engine, double norm, bool leads) const {
  if (!std::isfinite(norm)) return norm;  // whichever of equal blocks it is in
  double repeated = 0;
  bool keeps_any = false;
  for (uint32_t i = 0; i < part_.blocks.size(); ++i) {
    if (part_.blocks[i].keeps) {
      keeps_any = true;
      continue;
    }
    GEMINID_ASSIGN_OR_RETURN(const double squares, SquaresOf(engine, zero::ParameterId{i}));
    repeated += squares;
  }
  // Where nothing counts, no rounding does either.
  if (!keeps_any) return 0;
  return (leads ? norm * norm : 0) - repeated;
}

}  // namespace geminid::trainer
