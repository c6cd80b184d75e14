// How many places of the arena geminid-train uses for offloaded activations.
#ifndef GEMINID_TRAINING_FORECAST_OFFLOAD_ROOM_H_
#define GEMINID_TRAINING_FORECAST_OFFLOAD_ROOM_H_

#include <cstdint>
#include <vector>

namespace geminid::forecast {

// With fewer places, one item cannot move out and another in while a third one is in use.
inline constexpr std::uint32_t kFewestPlaces = 3;

// The memory of one rank's device. An item is what one sublayer saves for its backward pass.
struct OffloadRoom {
  std::uint64_t arena_bytes = 0;
  std::uint64_t model_bytes = 0;      // the least with which a step runs: weights and state
  std::uint64_t workspace_bytes = 0;  // of a micro-batch that recomputes
  std::uint64_t input_bytes = 0;      // of each item's input, which workspace_bytes includes
  std::vector<std::uint64_t> item_bytes{};
};

// The device memory beside the model with so many places. There are at least as many items.
std::uint64_t OffloadingBytes(const OffloadRoom& room, std::uint32_t places);
bool OffloadingFits(const OffloadRoom& room, std::uint32_t places);

// The most places that fit beside the model, at least kFewestPlaces and at most the number of
// items. 0: there are no items.
std::uint32_t MostPlaces(const OffloadRoom& room);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_OFFLOAD_ROOM_H_
