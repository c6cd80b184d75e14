#include "tools/sim/trainer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/sim/noise.h"

namespace geminid::sim {

using core::ChunkState;
using planner::ChunkIndex;

namespace {

// The value that the barrier reduces: the sum of squares.
constexpr uint64_t kBarrierBytes = sizeof(double);

}  // namespace

Trainer::Trainer(TrainerContext context)
    : context_(std::move(context)),
      mover_({.process = context_.process,
              .port = context_.port,
              .rendezvous = context_.rendezvous,
              .chunks = context_.chunks,
              .counts_bytes_only = context_.schedule->counts_bytes_only,
              .weights_current = [this](ChunkIndex chunk) { return updater_.IsCurrent(chunk); },
              .changed = [this] { Changed(); }}),
      updater_(context_.process, &context_.record->progress, [this] { mover_.Pump(); }) {
  context_.record->announced.resize(trace().chunks.size(), false);
}

uint64_t Trainer::Iteration(uint64_t step) const {
  return step * static_cast<uint64_t>(process().workload().micro_batches) +
         static_cast<uint64_t>(micro_batch_);
}

// A new process begins with an empty device, and so with the first iteration of the schedule.
const ScheduledMoment& Trainer::Scheduled() const {
  const uint64_t iteration = Iteration(step_ - first_step_) % context_.schedule->iterations;
  return context_.schedule->moments[iteration * trace().moments.size() + moment_];
}

// --- waiting -------------------------------------------------------------------------------------

void Trainer::WaitUntil(std::function<bool()> ready, const std::function<WaitCause()>& cause,
                        std::function<void()> next) {
  if (ready()) return next();
  wait_ = Wait{std::move(ready), cause, std::move(next), cause(), process().now()};
}

void Trainer::NoteWait() {
  process().observer().AddWait(process().rank(), wait_->cause, wait_->since);
  wait_->since = process().now();
}

void Trainer::Changed() {
  if (!wait_.has_value()) return;
  NoteWait();
  if (!wait_->ready()) {
    wait_->cause = wait_->cause_of();
    return;
  }
  const std::function<void()> next = std::move(wait_->next);
  wait_.reset();
  next();
}

// --- moments -------------------------------------------------------------------------------------

void Trainer::Start(uint64_t first_step) {
  first_step_ = step_ = first_step;
  if (context_.record->progress.step < first_step) {
    updater_.Start(first_step);  // the others have passed the barrier
  } else {
    updater_.Resume();
  }
  for (const planner::Placement& placement : context_.schedule->resident_at_start) {
    mover_.Gather({placement.chunk, placement.device_offset, /*prefetch=*/true});
  }
  WaitUntil([this] { return mover_.IsIdle(); }, [] { return WaitCause::kCopy; },
            [this] { BeginMicroBatch(); });
}

void Trainer::BeginMicroBatch() {
  moment_ = 0;
  EnterMoment();
}

void Trainer::EnterMoment() {
  process().observer().SetMoment(process().rank(), moment_);
  context_.port->Ask(shm::RequestOp::kBeginMoment, shm::kNoChunk, moment_, nullptr);
  for (const Eviction& eviction : Scheduled().evictions) {
    if (eviction.copy_back) {
      mover_.CopyBack(eviction.chunk);
    } else {
      mover_.Drop(eviction.chunk);
    }
  }
  Reserve(ExtentBytes(trace().moments[moment_].workspace_bytes), [this] { IssueLoads(); });
}

// Shrinking asks and does not wait; growing waits for extents that are leaving, then asks.
void Trainer::Reserve(uint64_t bytes, std::function<void()> next) {
  const uint64_t arena = ExtentBytes(trace().arena_bytes);
  const bool grows = bytes > reserved_bytes_;
  reserved_bytes_ = bytes;
  const auto reserved = [this, arena, bytes, next = std::move(next)] {
    process().observer().SetMemory(process().rank(), Owner::kActivations, bytes);
    mover_.SetLimit(arena - std::min(arena, bytes));
    next();
  };
  const bool in_arena = !context_.schedule->counts_bytes_only;
  if (!grows) {
    if (in_arena) context_.port->Reserve(bytes, nullptr);
    return reserved();
  }
  WaitUntil([this, limit = arena - std::min(arena, bytes)] { return mover_.IsBelow(limit); },
            [] { return WaitCause::kSpace; },
            [this, in_arena, bytes, reserved] {
              if (!in_arena) return reserved();
              context_.port->Reserve(bytes, reserved);
            });
}

void Trainer::IssueLoads() {
  for (const ScheduledLoad& load : Scheduled().loads) {
    if (mover_.NeedsGather(load.chunk)) mover_.Gather(load);
  }
  const auto missing = [this]() -> std::optional<ChunkIndex> {
    for (const planner::Use& use : trace().moments[moment_].uses) {
      if (!mover_.IsResident(use.chunk)) return use.chunk;
    }
    return std::nullopt;
  };
  WaitUntil([missing] { return !missing().has_value(); },
            [this, missing] { return mover_.CauseOfWait(*missing()); }, [this] { Compute(); });
}

void Trainer::Hold(ChunkIndex chunk) {
  const core::ChunkId gathered = context_.chunks->gathered[chunk];
  if (!context_.port->Lease(gathered)) {
    process().Fail(absl::InternalError(absl::StrCat("chunk ", chunk, " could not be leased")));
    return;
  }
  const auto move = [&](ChunkState state) {
    context_.port->Ask(shm::RequestOp::kTransition, gathered, static_cast<uint64_t>(state),
                       nullptr);
  };
  if (!context_.record->announced[chunk]) move(ChunkState::kHold);
  context_.record->announced[chunk] = true;
  move(ChunkState::kCompute);
}

void Trainer::Compute() {
  for (const planner::Use& use : trace().moments[moment_].uses) Hold(use.chunk);
  const uint64_t n = Iteration(step_) * trace().moments.size() + moment_;
  const double noise =
      NoiseFactor(process().seed(), NoiseSource::kCompute, static_cast<uint64_t>(process().rank()),
                  n, process().machine().compute_noise);
  process().Work(Track::kCompute, absl::StrCat("moment ", moment_),
                 trace().moments[moment_].compute_seconds * noise, {}, [this] { LeaveMoment(); });
}

void Trainer::LeaveMoment() {
  for (const planner::Use& use : trace().moments[moment_].uses) {
    const core::ChunkId gathered = context_.chunks->gathered[use.chunk];
    const auto move = [&](ChunkState state) {
      context_.port->Ask(shm::RequestOp::kTransition, gathered, static_cast<uint64_t>(state),
                         nullptr);
    };
    context_.port->Release(gathered);
    if (!use.invalidates) {
      move(ChunkState::kHold);
      continue;
    }
    move(ChunkState::kHoldAfterBackward);
    move(ChunkState::kReadyForReduce);
    move(ChunkState::kHold);
    mover_.Reduce(use.chunk);
  }
  for (const ChunkIndex chunk : Scheduled().drops) mover_.Drop(chunk);
  if (++moment_ < trace().moments.size()) return EnterMoment();
  EndMicroBatch();
}

// --- steps ---------------------------------------------------------------------------------------

void Trainer::EndMicroBatch() {
  if (micro_batch_ + 1 < process().workload().micro_batches) {
    ++micro_batch_;
    return BeginMicroBatch();
  }
  WaitUntil([this] { return mover_.IsIdle() && updater_.IsIdle(); },
            [this] { return mover_.IsIdle() ? WaitCause::kUpdate : WaitCause::kReduce; },
            [this] { Barrier(); });
}

void Trainer::Barrier() {
  if (process().machine().world_size() == 1) return Commit();
  const core::Time since = process().now();
  context_.rendezvous->Arrive(Channel::kControl, process().rank(), process().Guard([this, since] {
    // A reduction and a broadcast: two rings' worth of rounds.
    process().After(2 * CollectiveSeconds(process().machine(), kBarrierBytes), [this, since] {
      process().observer().AddWait(process().rank(), WaitCause::kBarrier, since);
      Commit();
    });
  }));
}

void Trainer::Commit() {
  micro_batch_ = 0;
  ++step_;
  updater_.Start(step_);
  context_.committed(step_);
  if (step_ < context_.steps) BeginMicroBatch();
}

}  // namespace geminid::sim
