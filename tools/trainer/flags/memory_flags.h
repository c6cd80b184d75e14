// The flags of device memory and host memory: where state lies, and the limits.
#ifndef GEMINID_TOOLS_TRAINER_FLAGS_MEMORY_FLAGS_H_
#define GEMINID_TOOLS_TRAINER_FLAGS_MEMORY_FLAGS_H_

#include <span>

#include "absl/status/status.h"
#include "tools/trainer/flags/flags.h"
#include "training/settings/options.h"

namespace geminid::trainer {

std::span<const FlagSpec> MemoryFlags();
// For training alone.
inline constexpr FlagSpec kStatePlacementFlag = {
    "--optimizer-state", &Flags::optimizer_state, "WHERE",
    "auto, host, device, streamed (on the host, and updated by the device), disk (with "
    "--state-disk), or a share of the spare device memory, from 0 to 1"};
std::span<const FlagSpec> StateDiskFlags();
inline constexpr FlagSpec kActivationsFlag = {
    "--activations", &Flags::activations, "HOW",
    "Activations for the backward pass: keep (on the device), offload (to host memory), recompute, "
    "or auto: the fastest that fits"};

// INVALID_ARGUMENT names the flag.
absl::Status ParseMemory(const Flags& flags, TrainOptions* options);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_MEMORY_FLAGS_H_
