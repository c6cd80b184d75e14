#include "client/zero/core/gradient_book.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace geminid::zero {

GradientBook::GradientBook(std::vector<Tensor> tensors, uint32_t chunks)
    : tensors_(std::move(tensors)),
      chunks_(chunks),
      written_(tensors_.size(), 0),
      written_in_step_(tensors_.size(), false) {
  std::vector<bool> separate(chunks, false);
  for (uint32_t t = 0; t < tensors_.size(); ++t) {
    if (!tensors_[t].trainable) continue;
    Chunk& chunk = chunks_[tensors_[t].chunk];
    chunk.trained.push_back(t);
    if (tensors_[t].separate || tensors_[t].uses == 0) separate[tensors_[t].chunk] = true;
  }
  for (uint32_t c = 0; c < chunks; ++c) {
    chunks_[c].storage = c;
    owners_.push_back(c);
  }
  for (uint32_t c = 0; c < chunks; ++c) {
    if (!separate[c]) continue;
    chunks_[c].storage = static_cast<uint32_t>(owners_.size());
    owners_.push_back(c);
  }
}

void GradientBook::BeginMicroBatch() {
  std::fill(written_.begin(), written_.end(), 0);
  for (Chunk& chunk : chunks_) chunk.reduced = false;
}

void GradientBook::BeginStep() {
  BeginMicroBatch();
  std::fill(written_in_step_.begin(), written_in_step_.end(), false);
  for (Chunk& chunk : chunks_) chunk.reductions = 0;
}

void GradientBook::Reduce(uint32_t chunk) {
  chunks_[chunk].reduced = true;
  ++chunks_[chunk].reductions;
}

bool GradientBook::HasGradient(uint32_t chunk) const {
  return std::ranges::any_of(chunks_[chunk].trained,
                             [this](uint32_t tensor) { return written_[tensor] > 0; });
}

bool GradientBook::AllReduced(int times) const {
  return std::ranges::all_of(chunks_, [times](const Chunk& chunk) {
    return chunk.trained.empty() || chunk.reductions == times;
  });
}

bool GradientBook::WeightIsThere(uint32_t tensor) const {
  const uint32_t chunk = tensors_[tensor].chunk;
  return IsSeparate(chunk) || chunks_[chunk].reduced || written_[tensor] == 0;
}

absl::Status GradientBook::CheckWeight(uint32_t tensor) const {
  const Tensor& one = tensors_[tensor];
  if (WeightIsThere(tensor)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "parameter '", one.name,
      "' is used after its gradient replaced its weight; set Parameter::separate_gradient"));
}

absl::Status GradientBook::CheckGradient(uint32_t tensor) const {
  const Tensor& one = tensors_[tensor];
  if (!one.trainable) {
    return absl::FailedPreconditionError(
        absl::StrCat("parameter '", one.name, "' takes no gradient: it is frozen"));
  }
  const Chunk& chunk = chunks_[one.chunk];
  const bool all = !IsSeparate(one.chunk) && written_[tensor] >= one.uses;
  if (!chunk.reduced && !all) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "parameter '", one.name, "' is given gradient number ", written_[tensor] + 1,
      chunk.reduced ? " after the gradient of its chunk was complete" : "",
      "; set Parameter::backward_uses to the number of gradients in a backward pass, 0 for any"));
}

void GradientBook::Write(uint32_t tensor) {
  ++written_[tensor];
  written_in_step_[tensor] = true;
}

uint32_t GradientBook::reduced() const {
  return static_cast<uint32_t>(std::ranges::count_if(chunks_, &Chunk::reduced));
}

bool GradientBook::Complete(uint32_t chunk) const {
  const std::vector<uint32_t>& trained = chunks_[chunk].trained;
  return !trained.empty() && std::ranges::all_of(trained, [this](uint32_t tensor) {
    return tensors_[tensor].uses > 0 && written_[tensor] >= tensors_[tensor].uses;
  });
}

}  // namespace geminid::zero
