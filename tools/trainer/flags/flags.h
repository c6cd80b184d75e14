// Every flag's value, as text. The trainer parses numbers itself: CLI11 takes "-1" for an unsigned
// number, and ignores what follows a number.
#ifndef GEMINID_TOOLS_TRAINER_FLAGS_FLAGS_H_
#define GEMINID_TOOLS_TRAINER_FLAGS_FLAGS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
}  // namespace CLI

namespace geminid::trainer {

inline constexpr char kUnlimited[] = "unlimited";

// The separator between the values of a flag that is given several times: the ASCII unit separator,
// which no name has.
inline constexpr char kBetweenValues = '\x1f';

// Empty: not given, or derived from the other flags. `text` and `shards` may have several values.
struct Flags {
  std::string text, shards, images, validation, validation_every, validation_batches;
  std::string model, family, layers, hidden, heads, context, vocabulary, mask_token;
  std::string image_size, patch_size, channels, classes;
  std::string experts, experts_per_token, balance_loss, expert_capacity;
  std::string hosts, remote_shell = "ssh -o BatchMode=yes", host_timeout = "1.2";
  std::string ranks, min_ranks, max_ranks, parallel, restarts = "0", threads, steps = "100",
                                                     batch = "4", accumulate = "1", update_cost,
                                                     seed = "1", sampling, epochs;
  std::string placement = "auto", dtype = "bf16", norm_precision = "fp32";
  std::string device, device_memory = kUnlimited, host_memory, copy_bandwidth = kUnlimited;
  std::string lr, schedule = "constant", warmup_steps;
  std::string lr_floor, lr_first, lr_power, lr_milestones, lr_decay;
  std::string clip_norm = "1", update = "auto", loss_scale = "none", optimizer_state = "auto",
              activations = "auto", state_disk, state_disk_limit, state_disk_endurance;
  std::string optimizer = "adamw", state_dtype = "fp32";
  std::string weight_decay, beta1, beta2, beta3, epsilon, epsilon1, epsilon2;
  std::string momentum, dampening, nesterov, decay_after_momentum;
  std::string trust_coefficient, trust_limit;
  std::string decoupled, bias_correction, grad_averaging, always_adapt, max_grad_norm;
  std::string rate_decay, clip_threshold, decay_exponent;
  std::string relative_step, warmup_init, scale_parameter;
  std::string update_threads = "1", timeout = "60", socket, job = "geminid-train", priority = "0",
              queue_timeout = kUnlimited, report, weights_hash = "end", progress = "auto";
  std::string save, save_every, keep = "2", load, export_to, export_type = "fp32";
  std::string log, tensorboard;
  std::string freeze, lora_rank, lora_alpha, dropout;
  std::string prompt, prompt_tokens, tokens = "100", temperature = "0", top_k = "0",
                                     kv_cache = "auto";
  bool json = false;
  bool quiet = false, stop_on_nan = false, resume = false, save_over = false, eval_only = false;
};

struct FlagSpec {
  const char* name;
  std::string Flags::*value;
  const char* type;
  const char* help;
};

enum class RepeatRule { kLastCounts, kAllCount };

// If a flag is given several times, the last value wins, so that scripts can add to a command line;
// RepeatedFlags reports these flags. `app` and `flags` outlive the parsing.
void AddFlag(CLI::App* app, Flags* flags, const char* group, const FlagSpec& spec,
             RepeatRule repeated = RepeatRule::kLastCounts);
void AddFlags(CLI::App* app, Flags* flags, const char* group, std::span<const FlagSpec> specs);

// One line for each flag with several values of which only the last counts.
std::vector<std::string> RepeatedFlags(const CLI::App& app);

// A flag that belongs to only some kinds of a thing; `kinds` has a bit for each kind.
struct OwnedFlag {
  FlagSpec spec;
  uint32_t kinds = 0;
};

// INVALID_ARGUMENT if a given flag does not belong to `kind`; names the flag and its kinds.
// `choice` is the flag that chose the kind, `names` are the kinds' names by bit.
absl::Status CheckOwnedFlags(const Flags& flags, std::span<const OwnedFlag> owned, uint32_t kind,
                             const char* choice, std::span<const char* const> names);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_FLAGS_H_
