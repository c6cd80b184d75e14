#include "training/settings/evaluation_flags.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace geminid::trainer {
namespace {

constexpr std::string_view kUsed[] = {"--batch",
                                      "--channels",
                                      "--classes",
                                      "--context",
                                      "--copy-bandwidth",
                                      "--device",
                                      "--dtype",
                                      "--device-memory",
                                      "--eval-only",
                                      "--expert-capacity",
                                      "--experts",
                                      "--family",
                                      "--heads",
                                      "--experts-per-token",
                                      "--hidden",
                                      "--host-memory",
                                      "--host-timeout",
                                      "--hosts",
                                      "--image-size",
                                      "--images",
                                      "--job",
                                      "--layers",
                                      "--load",
                                      "--lora-alpha",
                                      "--lora-rank",
                                      "--mask-token",
                                      "--model",
                                      "--parallel",
                                      "--patch-size",
                                      "--norm-precision",
                                      "--placement",
                                      "--priority",
                                      "--progress",
                                      "--queue-timeout",
                                      "--quiet",
                                      "--ranks",
                                      "--report",
                                      "--remote-shell",
                                      "--shards",
                                      "--socket",
                                      "--text",
                                      "--threads",
                                      "--timeout",
                                      "--validation",
                                      "--vocabulary",
                                      "--validation-batches"};

// They name what training writes, or goes on from.
constexpr std::string_view kRefused[] = {
    "--save",   "--save-every", "--save-over",    "--keep",        "--resume",    "--restarts",
    "--export", "--log",        "--export-dtype", "--tensorboard", "--min-ranks", "--max-ranks"};

bool IsIn(std::span<const std::string_view> flags, const std::string& flag) {
  return std::ranges::find(flags, flag) != flags.end();
}

}  // namespace

absl::Status CheckEvaluationFlags(const std::vector<std::string>& given,
                                  std::vector<std::string>* notes) {
  std::vector<std::string> idle;
  for (const std::string& flag : given) {
    if (IsIn(kRefused, flag)) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag,
                       ": --eval-only trains nothing and writes nothing but --report; leave "
                       "it out. --load DIR evaluates the newest checkpoint in DIR"));
    }
    if (!IsIn(kUsed, flag)) idle.push_back(flag);
  }
  if (std::ranges::find(given, "--load") == given.end()) {
    return absl::InvalidArgumentError(
        "--eval-only: there is nothing to evaluate; give --load a checkpoint, a folder of "
        "checkpoints or a Hugging Face folder");
  }
  if (!idle.empty()) {
    notes->push_back(absl::StrCat(absl::StrJoin(idle, ", "),
                                  idle.size() == 1 ? ": it does" : ": they do",
                                  " nothing with --eval-only"));
  }
  return absl::OkStatus();
}

absl::Status MakeEvaluation(TrainOptions* options) {
  if (options->parallel.automatic || options->parallel.tensor.size > 1) {
    return absl::InvalidArgumentError(
        "--parallel: --eval-only supports only pipeline=N, sequence, data and zero yet; data "
        "parallelism alone needs no --parallel");
  }
  options->eval_only = true;
  options->epochs = 0;
  options->follows_noise.reset();
  options->activations = Activations::kRecompute;
  zero::Options fresh;
  fresh.data_type = options->zero.data_type;
  fresh.stage = options->zero.stage;
  fresh.placement = options->zero.placement;
  options->zero = std::move(fresh);
  return absl::OkStatus();
}

}  // namespace geminid::trainer
