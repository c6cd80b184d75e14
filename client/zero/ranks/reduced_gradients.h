// Gradients of this rank's shard between their reduction and their update. Has sums of squares, of
// gradients before the reduction too, and the landing places of gradients that are used at once.
// Knows which copies to where the update reads them are in progress. Pure.
#ifndef GEMINID_CLIENT_ZERO_RANKS_REDUCED_GRADIENTS_H_
#define GEMINID_CLIENT_ZERO_RANKS_REDUCED_GRADIENTS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <numeric>
#include <optional>
#include <vector>

#include "client/zero/basics/layout.h"

namespace geminid::zero {

// Not thread-safe; the mover's lock guards it.
class ReducedGradients {
 public:
  // The `index`-th granule of a reduced shard, and the landing place that it has taken.
  struct GradientLanding {
    uint32_t chunk = 0;
    uint32_t index = 0;
    uint32_t place = 0;
  };

  ReducedGradients(const Layout& layout, uint32_t landing_places)
      : layout_(layout), squares_(layout.granules), free_places_(landing_places) {
    std::iota(free_places_.begin(), free_places_.end(), 0u);
  }

  // --- sums of squares, by granule ---

  void SetSquares(const ChunkShape& shape, const std::vector<double>& squares) {
    std::ranges::copy(squares, squares_.begin() + shape.first_granule);
  }
  void ClearSquares() {
    std::ranges::fill(squares_, 0.0);
    std::ranges::fill(own_squares_, 0.0);
  }
  // The sum over granules, in order.
  double Squares() const { return std::accumulate(squares_.begin(), squares_.end(), 0.0); }
  bool IsFinite(const ChunkShape& shape) const {
    const auto first = squares_.begin() + shape.first_granule;
    return std::isfinite(std::accumulate(first, first + shape.granules, 0.0));
  }
  // The first chunk of the layout whose squares are not finite.
  std::optional<uint32_t> NotFinite() const {
    const auto found = std::ranges::find_if_not(
        layout_.chunks, [this](const ChunkShape& shape) { return IsFinite(shape); });
    if (found == layout_.chunks.end()) return std::nullopt;
    return static_cast<uint32_t>(found - layout_.chunks.begin());
  }

  // --- squares of this rank's unreduced gradients, by chunk, summed over the micro-batches ---

  void MeasureOwn() { own_squares_.resize(layout_.chunks.size()); }
  bool measures_own() const { return !own_squares_.empty(); }
  void AddOwnSquare(uint32_t chunk, double square) { own_squares_[chunk] += square; }
  double OwnSquares() const {
    return std::accumulate(own_squares_.begin(), own_squares_.end(), 0.0);
  }

  // --- gradients in transit ---

  // A chunk's gradients have left its extent, but are not yet added to their sums. One at a time.
  void BeginAdding() { adding_ = true; }
  void EndAdding() { adding_ = false; }
  bool adding() const { return adding_; }
  // The chunk's granules will be updated as they arrive. `land`: through landing places.
  void Expect(uint32_t chunk, uint32_t granules, bool land) {
    updating_ += granules;
    for (uint32_t g = 0; land && g < granules; ++g) landing_.push_back({chunk, g});
  }
  // The next granule to land. nullopt: there is none, or no place is free.
  std::optional<GradientLanding> TakeLanding() {
    if (landing_.empty() || free_places_.empty()) return std::nullopt;
    GradientLanding next = landing_.front();
    landing_.pop_front();
    next.place = free_places_.back();
    free_places_.pop_back();
    return next;
  }
  void FreePlace(uint32_t place) { free_places_.push_back(place); }
  void GranuleUpdated() { --updating_; }
  bool NoneOnItsWay() const { return !adding_ && updating_ == 0; }

 private:
  const Layout& layout_;
  std::vector<double> squares_;      // by granule
  std::vector<double> own_squares_;  // by chunk; empty: not measured
  bool adding_ = false;
  std::deque<GradientLanding> landing_;  // granules without a place yet
  std::vector<uint32_t> free_places_;
  uint32_t updating_ = 0;  // granules that are not updated yet
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RANKS_REDUCED_GRADIENTS_H_
