#include "tools/trainer/flags/flag_effects.h"

#include "absl/strings/str_cat.h"
#include "training/data/sampling.h"
#include "training/models/huggingface.h"

namespace geminid::trainer {
namespace {

using F = const Flags&;

constexpr bool kSaid = true;
constexpr char kSaveDir[] = "--save DIR, the folder of checkpoints";
constexpr char kShare[] = "--validation SHARE, the share of the data to hold out";
constexpr char kHosts[] =
    "--hosts FILE, the hosts to start ranks on, or a launcher whose run may move (--ranks, "
    "--restarts "
    "or --max-ranks)";
constexpr char kStateDisk[] = "--state-disk FOLDER, the folder of the optimizer's state";
constexpr char kMomentum[] = "--momentum above 0";
constexpr char kTemperature[] = "--temperature above 0: at 0 the likeliest token is taken";

bool Saves(F f) { return !f.save.empty(); }
bool Validates(F f) { return !f.validation.empty() && f.validation != "0"; }
bool ReachesHosts(F f) {
  const bool has_launcher = (!f.ranks.empty() && f.ranks != "1") || f.restarts != "0" ||
                            !f.min_ranks.empty() || !f.max_ranks.empty();
  return !f.hosts.empty() || has_launcher;
}
bool HasMomentum(F f) { return f.optimizer != "sgd" || (!f.momentum.empty() && f.momentum != "0"); }
bool Chooses(F f) { return f.temperature != "0"; }
// Whether the model masks tokens at random.
bool LoadsMasked(F f) {
  const absl::StatusOr<ModelConfig> model = ReadHuggingFaceConfig(f.load);
  return model.ok() && model->masks();
}
bool SeedCounts(F f) {
  const bool all_loaded = !f.load.empty() && f.lora_rank.empty();
  const bool drops = !f.dropout.empty() && f.dropout != "0";
  const bool new_classifier = !f.classes.empty();
  return !all_loaded || new_classifier || f.sampling != Name(Sampling::kSequential) || drops ||
         LoadsMasked(f);
}
bool HasStateOnDisk(F f) { return !f.state_disk.empty(); }
bool IsOnHost(F f) { return f.device != "cuda"; }
bool HasNarrowWeights(F f) { return f.dtype != "fp32"; }

constexpr FlagEffect kTraining[] = {
    {"--text"},
    {"--shards"},
    {"--images"},
    {"--batch"},
    {"--accumulate"},
    {"--update-cost",
     [](F f) { return f.accumulate.starts_with("auto") || f.batch.starts_with("auto"); },
     "--accumulate auto:MIN:MAX or --batch auto:MIN:MAX, whose decisions use it"},
    {"--seed", SeedCounts, "random first weights, a random order, --dropout or masked tokens",
     kSaid},
    {"--sampling"},
    {"--dropout"},
    {"--validation"},
    {"--validation-every", Validates, kShare},
    {"--validation-batches", [](F f) { return Validates(f) || f.eval_only; }, kShare},
    {"--model"},
    {"--family"},
    {"--layers"},
    {"--hidden"},
    {"--heads"},
    {"--context"},
    {"--vocabulary"},
    {"--mask-token"},
    {"--image-size"},
    {"--patch-size"},
    {"--channels"},
    {"--classes"},
    {"--experts"},
    {"--experts-per-token"},
    {"--balance-loss"},
    {"--expert-capacity"},
    {"--lora-rank"},
    {"--lora-alpha"},
    {"--freeze"},
    {"--dtype"},
    {"--norm-precision", HasNarrowWeights, "--dtype bf16: all is fp32", kSaid},
    {"--optimizer"},
    {"--state-dtype"},
    {"--weight-decay"},
    {"--beta1"},
    {"--beta2"},
    {"--beta3"},
    {"--epsilon"},
    {"--epsilon1"},
    {"--epsilon2"},
    {"--momentum"},
    {"--dampening", HasMomentum, kMomentum},
    {"--nesterov", HasMomentum, kMomentum},
    {"--decay-after-momentum", HasMomentum, kMomentum},
    {"--trust-coefficient"},
    {"--trust-limit"},
    {"--decoupled"},
    {"--bias-correction"},
    {"--grad-averaging"},
    {"--always-adapt"},
    {"--max-grad-norm"},
    {"--rate-decay"},
    {"--clip-threshold"},
    {"--decay-exponent"},
    {"--relative-step"},
    {"--warmup-init", [](F f) { return f.relative_step != "off"; }, "--relative-step on"},
    {"--scale-parameter"},
    {"--clip-norm"},
    {"--update"},
    {"--steps"},
    {"--epochs"},
    {"--lr"},
    {"--schedule"},
    {"--warmup-steps"},
    {"--loss-scale"},
    {"--lr-floor"},
    {"--lr-first"},
    {"--lr-power"},
    {"--lr-milestones"},
    {"--lr-decay"},
    {"--placement"},
    {"--device"},
    {"--device-memory"},
    {"--host-memory"},
    {"--copy-bandwidth", IsOnHost,
     "a simulated link: copies to a GPU take the time that they take"},
    {"--optimizer-state"},
    {"--state-disk"},
    {"--state-disk-limit", HasStateOnDisk, kStateDisk},
    {"--state-disk-endurance", HasStateOnDisk, kStateDisk},
    {"--activations"},
    {"--save"},
    {"--save-every", Saves, kSaveDir},
    {"--keep", Saves, kSaveDir},
    {"--export"},
    {"--export-dtype", [](F f) { return !f.export_to.empty(); }, "--export DIR"},
    {"--load"},
    {"--resume", Saves, kSaveDir},
    {"--save-over", Saves, kSaveDir},
    {"--eval-only"},
    {"--parallel"},
    {"--ranks"},
    {"--min-ranks"},
    {"--max-ranks"},
    {"--restarts"},
    {"--threads"},
    {"--timeout"},
    {"--socket"},
    {"--job"},
    {"--priority"},
    {"--queue-timeout"},
    {"--hosts"},
    {"--remote-shell", ReachesHosts, kHosts},
    {"--host-timeout", ReachesHosts, kHosts},
    {"--report"},
    {"--weights-hash", [](F f) { return !f.report.empty(); }, "--report PATH, which has the hash"},
    {"--log"},
    {"--tensorboard"},
    {"--progress", [](F f) { return !f.quiet || f.progress == "none"; }, "leaving --quiet out"},
    {"--update-threads"},
    {"--stop-on-nan"},
    {"--quiet"},
};

constexpr FlagEffect kGenerating[] = {
    {"--load"},
    {"--dtype"},
    {"--norm-precision", HasNarrowWeights, "--dtype bf16: all is fp32", kSaid},
    {"--prompt"},
    {"--prompt-tokens"},
    {"--tokens"},
    {"--temperature"},
    {"--top-k", Chooses, kTemperature, kSaid},
    {"--seed", Chooses, kTemperature, kSaid},
    {"--kv-cache"},
    {"--json"},
    {"--placement"},
    {"--device"},
    {"--device-memory"},
    {"--host-memory"},
    {"--copy-bandwidth", IsOnHost,
     "a simulated link: copies to a GPU take the time that they take"},
    {"--ranks"},
    {"--min-ranks", [](F) { return false; }, "training, which alone changes its ranks"},
    {"--max-ranks", [](F) { return false; }, "training, which alone changes its ranks"},
    {"--restarts", [](F f) { return f.restarts == "0"; }, "training, which alone has restarts"},
    {"--threads"},
    {"--timeout"},
    {"--socket"},
    {"--job"},
    {"--priority"},
    {"--queue-timeout"},
};

}  // namespace

std::span<const FlagEffect> TrainingEffects() { return kTraining; }
std::span<const FlagEffect> GeneratingEffects() { return kGenerating; }

absl::StatusOr<std::vector<std::string>> CheckEffects(
    std::span<const FlagEffect> effects, const Flags& flags,
    const std::function<bool(const std::string& flag)>& given) {
  std::vector<std::string> said;
  for (const FlagEffect& effect : effects) {
    if (effect.has == nullptr || !given(effect.flag) || effect.has(flags)) continue;
    const std::string words =
        absl::StrCat(effect.flag, ": it does nothing without ", effect.without);
    if (!effect.is_said) return absl::InvalidArgumentError(absl::StrCat(words, "; leave it out"));
    said.push_back(words);
  }
  return said;
}

}  // namespace geminid::trainer
