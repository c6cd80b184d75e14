#include "tools/sim/measure/timed_source.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "kernels/numeric/cast/cast.h"
#include "tools/trainer/initialization.h"

namespace geminid::sim {
namespace {

constexpr uint64_t kSeed = 1;
constexpr std::align_val_t kPageAlignment{4096};

}  // namespace

void TimedSource::FreePages::operator()(std::byte* bytes) const {
  ::operator delete[](bytes, kPageAlignment);
}

TimedSource::Pages TimedSource::MakePages(uint64_t bytes) {
  auto* pages = static_cast<std::byte*>(::operator new[](bytes, kPageAlignment));
  std::memset(pages, 0, bytes);  // the first touch is not to be timed
  return Pages(pages);
}

TimedSource::Pages TimedSource::MakeWeights(const trainer::ParameterSpec& spec) {
  std::vector<float> values(spec.elements());
  Fill(spec, kSeed, 0, values);
  Pages pages = MakePages(values.size() * sizeof(kernels::BFloat16));
  // Valid arguments cannot be refused.
  (void)kernels::CastToBFloat16(values.data(), values.size(),
                                reinterpret_cast<kernels::BFloat16*>(pages.get()));
  return pages;
}

class TimedSource::TimedUse final : public trainer::ParameterUse {
 public:
  TimedUse(TimedSource* source, std::vector<uint32_t> chunks)
      : source_(source), chunks_(std::move(chunks)) {}

  const std::byte* Weight(zero::ParameterId id) const override {
    return source_->weights_[static_cast<size_t>(id)].get();
  }
  std::byte* Gradient(zero::ParameterId id) override {
    return source_->gradients_[static_cast<size_t>(id)].get();
  }
  bool GradientAccumulates(zero::ParameterId id) const override {
    return source_->written_[static_cast<size_t>(id)] > 0;
  }
  absl::Status GradientWritten(zero::ParameterId id) override {
    source_->GradientWritten(static_cast<uint32_t>(id));
    return absl::OkStatus();
  }
  absl::Status Finish() override {
    source_->Finish(chunks_);
    return absl::OkStatus();
  }

 private:
  TimedSource* const source_;
  const std::vector<uint32_t> chunks_;
};

TimedSource::TimedSource(const trainer::ModelParameters& parameters, const zero::Layout& layout,
                         uint64_t workspace_bytes)
    : parameters_(parameters),
      layout_(layout),
      written_(parameters.specs.size(), 0),
      reduced_(layout.chunks.size(), false),
      memory_(MakePages(workspace_bytes)),
      workspace_(memory_.get(), workspace_bytes, &meter_,
                 [](uint64_t) { return absl::OkStatus(); }) {
  for (const trainer::ParameterSpec& spec : parameters.specs) {
    weights_.push_back(MakeWeights(spec));
    gradients_.push_back(MakePages(spec.elements() * sizeof(kernels::BFloat16)));
  }
}

absl::Status TimedSource::BeginMicroBatch() {
  recorder_.Clear();
  std::fill(written_.begin(), written_.end(), 0);
  std::fill(reduced_.begin(), reduced_.end(), false);
  workspace_.TakePeakExtent();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<trainer::ParameterUse>> TimedSource::Use(
    zero::Pass, std::span<const zero::ParameterId> parameters) {
  LeaveMoment();
  std::vector<uint32_t> chunks;
  for (const zero::ParameterId id : parameters) {
    chunks.push_back(layout_.tensors[static_cast<size_t>(id)].chunk);
  }
  std::sort(chunks.begin(), chunks.end());
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
  recorder_.BeginMoment(chunks);
  in_moment_ = true;
  auto use = std::make_unique<TimedUse>(this, std::move(chunks));
  began_ = Clock::now();
  return use;
}

void TimedSource::LeaveMoment() {
  if (!in_moment_) return;
  in_moment_ = false;
  recorder_.NoteCompute(std::chrono::duration<double>(Clock::now() - began_).count());
  recorder_.NoteWorkspace(workspace_.TakePeakExtent());
}

void TimedSource::GradientWritten(uint32_t parameter) {
  ++written_[parameter];
  recorder_.NoteGradient(layout_.tensors[parameter].chunk);
}

// A chunk is reduced when the gradients of all its tensors are complete.
void TimedSource::Finish(const std::vector<uint32_t>& chunks) {
  for (const uint32_t chunk : chunks) {
    const std::vector<uint32_t>& tensors = layout_.chunks[chunk].tensors;
    const bool complete = std::all_of(tensors.begin(), tensors.end(), [this](uint32_t tensor) {
      return written_[tensor] >= parameters_.specs[tensor].backward_uses;
    });
    if (!complete || reduced_[chunk]) continue;
    reduced_[chunk] = true;
    recorder_.NoteReduced(chunk);
  }
}

std::vector<zero::Moment> TimedSource::TakeMoments() {
  LeaveMoment();
  return recorder_.Moments();
}

}  // namespace geminid::sim
