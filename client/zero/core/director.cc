#include "client/zero/core/director.h"

#include <algorithm>
#include <utility>

namespace geminid::zero {

Director::Director(std::vector<Chunk> chunks)
    : chunks_(std::move(chunks)), places_(chunks_.size()) {}

// --- single chunks -------------------------------------------------------------------------------

bool Director::AnythingHeld() const {
  return std::ranges::any_of(places_, [](const Place& place) { return place.holders > 0; });
}

std::vector<uint32_t> Director::HeldChunks() const {
  std::vector<uint32_t> held;
  for (uint32_t chunk = 0; chunk < places_.size(); ++chunk) {
    if (places_[chunk].holders > 0) held.push_back(chunk);
  }
  return held;
}

// An operator needs its own chunks and those that others hold: none of these may leave.
std::vector<uint32_t> Director::Required(std::span<const uint32_t> chunks) const {
  std::vector<uint32_t> required = HeldChunks();
  required.insert(required.end(), chunks.begin(), chunks.end());
  std::sort(required.begin(), required.end());
  required.erase(std::unique(required.begin(), required.end()), required.end());
  return required;
}

void Director::Hold(std::span<const uint32_t> chunks) {
  for (uint32_t chunk : chunks) ++places_[chunk].holders;
}

void Director::Release(uint32_t chunk) { --places_[chunk].holders; }

void Director::Load(uint32_t chunk, std::optional<uint64_t> offset, std::optional<uint32_t> due,
                    Moves* moves) {
  Place& place = places_[chunk];
  if (place.on_device) return;
  place.on_device = true;
  place.overwritten = false;
  place.offset = offset;
  const Move::Kind kind = std::exchange(place.parked, false) ? Move::Kind::kReturn
                          : chunks_[chunk].is_gradient       ? Move::Kind::kOpen
                                                             : Move::Kind::kGather;
  if (kind != Move::Kind::kReturn) place.opened = kind == Move::Kind::kOpen;
  moves->push_back({kind, chunk, offset, due, kind == Move::Kind::kGather && TakeCopied(chunk)});
}

// Whether the hosts have copies already. They will after this gather.
bool Director::TakeCopied(uint32_t chunk) {
  return chunks_[chunk].copied && std::exchange(places_[chunk].copied, true);
}

void Director::Drop(uint32_t chunk, Moves* moves) {
  places_[chunk].on_device = false;
  places_[chunk].offset.reset();
  moves->push_back({Move::Kind::kDrop, chunk});
}

// Drops each unused chunk that does not lie where `wanted` has it.
void Director::DropMisplaced(const std::map<uint32_t, uint64_t>& wanted, Moves* moves,
                             StayingChunks stays) {
  for (uint32_t chunk = 0; chunk < places_.size(); ++chunk) {
    if (stays == StayingChunks::kNot && chunks_[chunk].stays) continue;
    const auto found = wanted.find(chunk);
    const bool in_place = found != wanted.end() && places_[chunk].offset == found->second;
    if (places_[chunk].idle() && !in_place && !AtHome(chunk)) Drop(chunk, moves);
  }
}

Moves Director::DropAll() {
  Moves moves;
  for (uint32_t chunk = 0; chunk < places_.size(); ++chunk) {
    if (places_[chunk].idle()) Drop(chunk, &moves);
    places_[chunk].copied = false;
  }
  return moves;
}

// Does not ask whether the chunk is on the device: a plan may have opened it long before.
bool Director::GradientBeginsMoment(uint32_t chunk) const {
  const Place& place = places_[chunk];
  return in_moment_ && !evaluating() && recorder_.reduced() && place.holders == 0 &&
         !place.holds_gradient;
}

Moves Director::OpenGradient(uint32_t chunk, bool planned) {
  Moves moves;
  if (planned && GradientBeginsMoment(chunk)) BeginMoment(Required({&chunk, 1}), &moves);
  if (places_[chunk].parked) {
    Load(chunk, HomeOf(chunk), /*due=*/std::nullopt, &moves);
  } else if (!places_[chunk].on_device) {
    Place& place = places_[chunk];
    place.on_device = place.opened = true;
    place.offset = HomeOf(chunk);
    moves.push_back({Move::Kind::kOpen, chunk, place.offset});
  }
  if (planned) recorder_.NoteUse(chunk);
  return moves;
}

void Director::NoteGradient(uint32_t chunk) {
  places_[chunk].holds_gradient = true;
  recorder_.NoteGradient(chunk);
}

Moves Director::Reduce(uint32_t chunk) {
  Place& place = places_[chunk];
  place.on_device = false;
  place.offset.reset();
  place.holds_gradient = false;
  recorder_.NoteReduced(chunk);
  return {{Move::Kind::kReduce, chunk}};
}

// --- on demand -----------------------------------------------------------------------------------

void Director::OnDemand(const std::vector<uint32_t>& required, Moves* moves) {
  const bool all_there =
      std::ranges::all_of(required, [this](uint32_t chunk) { return places_[chunk].on_device; });
  // Chunks that a plan keeps on the device serve evaluation too.
  if (all_there && evaluating()) return;
  for (uint32_t chunk = 0; chunk < places_.size(); ++chunk) {
    if (!places_[chunk].idle() || chunks_[chunk].stays || AtHome(chunk)) continue;
    if (!std::ranges::binary_search(required, chunk)) Drop(chunk, moves);
  }
  for (uint32_t chunk : required) Load(chunk, HomeOf(chunk), /*due=*/std::nullopt, moves);
}

// --- by plan -------------------------------------------------------------------------------------

// A chunk that no plan placed may lie anywhere, so no place counts as free.
bool Director::PlaceIsFree(uint64_t begin, uint64_t bytes) const {
  for (uint32_t chunk = 0; chunk < places_.size(); ++chunk) {
    const Place& place = places_[chunk];
    if (!place.on_device) continue;
    if (!place.offset.has_value()) return false;
    if (*place.offset < begin + bytes && begin < *place.offset + chunks_[chunk].bytes) return false;
  }
  return true;
}

bool Director::CanFollow(const PlannedRun& run, size_t moment,
                         const std::vector<uint32_t>& required) const {
  if (moment >= run.size() || !std::ranges::includes(run.uses(moment), required)) return false;
  std::vector<uint32_t> loaded;
  for (const PlannedLoad& load : run.moment(moment).loads) {
    loaded.push_back(load.index);
    if (places_[load.index].on_device) continue;
    if (!PlaceIsFree(run.OffsetOf(load), chunks_[load.index].bytes)) return false;
  }
  return std::ranges::all_of(required, [&](uint32_t chunk) {
    return places_[chunk].on_device || std::ranges::find(loaded, chunk) != loaded.end();
  });
}

void Director::IssueLoads(const PlannedRun& run, size_t moment, Moves* moves) {
  for (const PlannedLoad& load : run.moment(moment).loads) {
    std::optional<uint32_t> due;
    if (load.deadline_moment != moment) due = load.deadline_moment;
    Load(load.index, run.OffsetOf(load), due, moves);
  }
}

// Also drops chunks that should have become gradients and did not: the plan reuses their places.
// Parks incomplete gradients: the plan knows only that they are used, and may place them elsewhere.
void Director::DropPlanned(const PlannedRun& run, size_t moment, Moves* moves) {
  for (const PlannedDrop& drop : run.moment(moment).drops) {
    Place& place = places_[drop.index];
    if (run.has_homes() && !drop.becomes_gradient) continue;
    if (place.idle()) {
      Drop(drop.index, moves);
    } else if (place.on_device && place.holders == 0 && !drop.becomes_gradient) {
      place.on_device = false;
      place.offset.reset();
      place.parked = true;
      moves->push_back({Move::Kind::kPark, drop.index});
    }
  }
}

// False if a chunk that cannot move lies where the plan wants another one.
bool Director::CanRestore(const std::map<uint32_t, uint64_t>& wanted) const {
  for (uint32_t chunk = 0; chunk < places_.size(); ++chunk) {
    const Place& place = places_[chunk];
    if (!place.on_device || place.idle()) continue;
    if (!place.offset.has_value()) return false;
    for (const auto& [other, offset] : wanted) {
      if (other != chunk && *place.offset < offset + chunks_[other].bytes &&
          offset < *place.offset + chunks_[chunk].bytes) {
        return false;
      }
    }
  }
  return true;
}

// Restores the chunks before `moment` in the order of their next use. Chunks not used come last.
void Director::Restore(const PlannedRun& run, size_t moment, Moves* moves, StayingChunks stays) {
  const std::map<uint32_t, uint64_t> wanted = run.ResidentBefore(moment);
  DropMisplaced(wanted, moves);
  std::vector<std::pair<size_t, uint32_t>> missing;  // moments until its next use, chunk
  for (const auto& [chunk, offset] : wanted) {
    const bool is_left_alone = stays == StayingChunks::kNot && chunks_[chunk].stays;
    if (places_[chunk].on_device || is_left_alone) continue;
    const size_t due = run.NextUse(chunk, moment);
    const size_t rounds = !run.Uses(chunk) ? 2 : due < moment ? 1 : 0;
    missing.emplace_back(due + rounds * run.size(), chunk);
  }
  std::ranges::sort(missing);
  for (const auto& [due, chunk] : missing) {
    Load(chunk, wanted.at(chunk), static_cast<uint32_t>(due % run.size()), moves);
  }
}

// Between micro-batches the weights may change. Only these chunks stay: those that the plan wants
// there, and those that ChangeWeights drops.
void Director::KeepForNext(Moves* moves) {
  DropMisplaced(training_ ? training_->ResidentBefore(0) : std::map<uint32_t, uint64_t>(), moves,
                StayingChunks::kNot);
}

Moves Director::PutInForce(PlannedRun run) {
  Moves moves;
  training_.emplace(std::move(run));
  if (training_->has_homes()) evaluation_.reset();
  Restore(*training_, 0, &moves, StayingChunks::kNot);
  return moves;
}

// --- micro-batches -------------------------------------------------------------------------------

Moves Director::BeginMicroBatch() {
  Moves moves;
  if (evaluating()) EndEvaluation(/*resume=*/false, &moves);
  recorder_.Clear();
  moment_ = 0;
  in_moment_ = false;
  state_ = training_ ? State::kFollowing : State::kSampling;
  NoteThereAtStart();
  if (training_) Restore(*training_, 0, &moves);
  return moves;
}

void Director::NoteThereAtStart() {
  there_at_start_.clear();
  if (!training_ || !training_->has_homes()) return;
  const std::map<uint32_t, uint64_t> resident = training_->ResidentBefore(0);
  for (uint32_t chunk = 0; chunk < places_.size(); ++chunk) {
    const bool there = places_[chunk].on_device && AtHome(chunk);
    if (there && training_->Uses(chunk) && !resident.contains(chunk)) {
      there_at_start_.push_back(chunk);
    }
  }
}

Moves Director::BeginOperator(bool evaluate, std::span<const uint32_t> chunks) {
  Moves moves;
  const std::vector<uint32_t> required = Required(chunks);
  if (evaluate) {
    if (evaluating()) {
      GoOnEvaluating(required, &moves);
    } else {
      BeginEvaluation(required, &moves);
    }
    Hold(chunks);
    return moves;
  }
  if (evaluating()) EndEvaluation(/*resume=*/true, &moves);
  BeginMoment(required, &moves);
  if (state_ != State::kFollowing) OnDemand(required, &moves);
  Hold(chunks);
  return moves;
}

void Director::BeginMoment(const std::vector<uint32_t>& required, Moves* moves) {
  LeaveMoment(moves);
  in_moment_ = true;
  recorder_.BeginMoment(required, HeldChunks());
  if (state_ == State::kFollowing && !CanFollow(*training_, moment_, required)) {
    state_ = State::kDeviated;
  }
  if (state_ == State::kFollowing) IssueLoads(*training_, moment_, moves);
}

void Director::LeaveMoment(Moves* moves) {
  if (!std::exchange(in_moment_, false)) return;
  if (state_ == State::kFollowing) DropPlanned(*training_, moment_, moves);
  ++moment_;
}

Moves Director::EndOperators() {
  Moves moves;
  if (evaluating()) EndEvaluation(/*resume=*/false, &moves);
  LeaveMoment(&moves);
  // The micro-batch was shorter than planned: drop the chunks gathered for the rest.
  if (state_ == State::kFollowing && moment_ < training_->size()) state_ = State::kDeviated;
  return moves;
}

Moves Director::EndMicroBatch() {
  Moves moves;
  outcome_ = state_ == State::kSampling    ? Outcome::kSampled
             : state_ == State::kFollowing ? Outcome::kFollowed
                                           : Outcome::kDeviated;
  state_ = State::kIdle;
  if (outcome_ == Outcome::kFollowed) {
    backoff_.Followed();
  } else {
    backoff_.NotFollowed(outcome_ == Outcome::kDeviated, recorder_.Fingerprint());
  }
  KeepForNext(&moves);
  return moves;
}

Moves Director::ChangeWeights() {
  Moves moves;
  if (evaluating()) EndEvaluation(/*resume=*/false, &moves);
  for (uint32_t chunk = 0; chunk < places_.size(); ++chunk) {
    const bool stale = (chunks_[chunk].stays || AtHome(chunk)) && chunks_[chunk].changes;
    if (stale && places_[chunk].idle()) Drop(chunk, &moves);
    if (chunks_[chunk].changes) places_[chunk].copied = false;
  }
  KeepForNext(&moves);
  return moves;
}

Moves Director::CancelMicroBatch() {
  Moves moves = EndOperators();
  for (uint32_t chunk = 0; chunk < places_.size(); ++chunk) {
    Place& place = places_[chunk];
    const bool weights_are_gone = place.holds_gradient || place.overwritten;
    place.holds_gradient = place.overwritten = false;
    if (std::exchange(place.parked, false) || (weights_are_gone && AtHome(chunk))) {
      Drop(chunk, &moves);
    }
  }
  outcome_ = Outcome::kDeviated;
  backoff_.GivenUp();
  state_ = State::kIdle;
  KeepForNext(&moves);
  return moves;
}

// --- evaluation ----------------------------------------------------------------------------------

void Director::BeginEvaluation(const std::vector<uint32_t>& required, Moves* moves) {
  LeaveMoment(moves);
  interrupted_ = state_;
  state_ = State::kEvaluating;
  at_start_ = true;
  sample_.Clear();
  GoOnEvaluating(required, moves);
}

void Director::GoOnEvaluating(const std::vector<uint32_t>& required, Moves* moves) {
  if (by_evaluation_plan()) {
    DropPlanned(*evaluation_, evaluation_moment_, moves);
    evaluation_moment_ = (evaluation_moment_ + 1) % evaluation_->size();
    if (!CanFollow(*evaluation_, evaluation_moment_, required)) {
      state_ = State::kEvaluating;
      sample_.Clear();
    }
  } else if (std::exchange(at_start_, false) && interrupted_ == State::kIdle && evaluation_ &&
             std::ranges::includes(evaluation_->uses(0), required)) {
    if (CanRestore(evaluation_->ResidentBefore(0))) {
      Restore(*evaluation_, 0, moves);
      evaluation_moment_ = 0;
      if (CanFollow(*evaluation_, 0, required)) state_ = State::kEvaluatingByPlan;
    }
  }
  // Under a plan no sample is taken: only the current operator is recorded.
  if (by_evaluation_plan()) sample_.Clear();
  sample_.Add(required, HeldChunks());
  if (by_evaluation_plan()) {
    IssueLoads(*evaluation_, evaluation_moment_, moves);
  } else {
    OnDemand(required, moves);
  }
}

std::vector<Moment> Director::TakeEvaluationSample(bool end) {
  if (state_ != State::kEvaluating || interrupted_ != State::kIdle) return {};
  // Weights at home need no plan.
  if (training_ && training_->has_homes()) return {};
  return sample_.Take(end);
}

void Director::SetEvaluationPlan(PlannedRun run) {
  evaluation_.emplace(std::move(run));
  at_start_ = true;
}

void Director::EndEvaluation(bool resume, Moves* moves) {
  state_ = interrupted_;
  sample_.Clear();
  if (!resume || state_ != State::kFollowing) return;
  if (CanRestore(training_->ResidentBefore(moment_))) {
    Restore(*training_, moment_, moves);
  } else {
    state_ = State::kDeviated;
  }
}

}  // namespace geminid::zero
