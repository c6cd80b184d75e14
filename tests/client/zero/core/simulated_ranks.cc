#include "tests/client/zero/core/simulated_ranks.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "client/zero/core/director.h"
#include "client/zero/core/homes.h"
#include "client/zero/core/move_queue.h"
#include "client/zero/core/placer.h"
#include "client/zero/core/staying.h"
#include "daemon/planner/make_plan.h"

namespace geminid::zero {
namespace {

using Kind = SimulatedOperator::Kind;
using Task = MoveQueue::Task;

struct Defect : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Exhausted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The contents of a part of memory.
struct Content {
  int version = -1;  // of the weights, by steps; -1: none
  std::map<uint32_t, int>
      gradients;  // contributions by parameter, including those written over the weight
};

planner::Trace ToPlanner(const Trace& trace) {
  planner::Trace made;
  made.arena_bytes = trace.arena_bytes;
  for (const TraceChunk& chunk : trace.chunks) {
    made.chunks.push_back({static_cast<uint64_t>(chunk.chunk), chunk.device_bytes,
                           chunk.transfer_bytes, chunk.gradient_bytes, chunk.frozen});
  }
  for (const TraceMoment& moment : trace.moments) {
    planner::MomentTrace& to = made.moments.emplace_back();
    for (const TraceUse& use : moment.uses) to.uses.push_back({use.index, use.invalidates});
    to.workspace_bytes = moment.workspace_bytes;
    to.compute_seconds = moment.compute_seconds;
  }
  made.link.h2d_bytes_per_second = made.link.d2h_bytes_per_second = 1e9;
  return made;
}

Plan FromPlanner(const planner::Plan& plan) {
  Plan made;
  for (const planner::Step& step : plan.steps) {
    PlannedMoment& moment = made.moments.emplace_back();
    for (const planner::Load& load : step.loads) {
      moment.loads.push_back({load.chunk, load.device_offset, load.deadline_moment});
    }
    for (const planner::Drop& drop : step.drops) {
      moment.drops.push_back({drop.chunk, drop.becomes_gradient, drop.free_moment});
    }
  }
  for (const planner::Placement& placement : plan.resident_at_start) {
    made.resident_at_start.push_back({placement.chunk, placement.device_offset});
  }
  return made;
}

// The ranks meet, as for a plan.
struct Meeting {
  std::vector<std::vector<Moment>> moments;  // by rank, empty until it came
  std::optional<std::optional<PlannedRun>> plan;
};

struct World {
  const SimulatedProgram* program = nullptr;
  planner::Policy policy = planner::Policy::kAuto;
  std::map<int, Meeting> meetings;
  SimulationResult result;

  std::optional<PlannedRun> MakePlan(const Meeting& meeting, bool evaluation) const {
    Trace trace;
    trace.arena_bytes = program->arena_units * kUnit;
    const size_t chunks = program->chunk_units.size();
    for (size_t i = 0; i < 2 * chunks; ++i) {
      TraceChunk& chunk = trace.chunks.emplace_back();
      chunk.chunk = ChunkId{static_cast<uint32_t>(i)};
      chunk.device_bytes = program->chunk_units[i % chunks] * kUnit;
      chunk.transfer_bytes = i < chunks ? chunk.device_bytes : 0;
      chunk.frozen = !program->chunk_trainable[i % chunks];
    }
    for (size_t m = 0; m < meeting.moments[0].size(); ++m) {
      TraceMoment& moment = trace.moments.emplace_back();
      for (const Moment::Use& use : meeting.moments[0][m].uses) {
        moment.uses.push_back({use.chunk, use.invalidates});
      }
      for (const std::vector<Moment>& moments : meeting.moments) {
        if (moments.size() != meeting.moments[0].size() ||
            moments[m].uses != meeting.moments[0][m].uses) {
          throw Defect("the ranks recorded different operators");
        }
        moment.workspace_bytes = std::max(moment.workspace_bytes, moments[m].workspace_bytes);
      }
      moment.compute_seconds = 1e-3;
    }
    const bool stays = program->weights_stay && !evaluation;
    planner::PlannerOptions options;
    options.policy = stays ? planner::Policy::kAuto : policy;
    options.weights_change_between_iterations = !evaluation && !stays;
    options.alignment_bytes = kUnit;
    options.max_lookahead_moments = 8;
    const auto plan = planner::MakePlan(
        ToPlanner(stays ? WithWhatStays(trace, {.chunks = chunks}) : trace), options);
    if (absl::IsResourceExhausted(plan.status())) return std::nullopt;
    if (!plan.ok()) throw Defect("planner: " + std::string(plan.status().message()));
    PlannedRun run(FromPlanner(*plan), trace.moments, 0);
    if (MovesHeldChunks(run, meeting.moments[0])) return std::nullopt;
    if (stays && !KeepsStayingWeights(run.plan(), {.chunks = chunks})) return std::nullopt;
    const bool homes = !evaluation && !stays && policy != planner::Policy::kCpu;
    if (auto found = homes ? HomesOf(trace) : std::nullopt) run.PlaceAtHome(*std::move(found));
    return run;
  }
};

std::vector<uint64_t> BytesOf(const SimulatedProgram& program) {
  std::vector<uint64_t> bytes;
  for (int copy = 0; copy < 2; ++copy) {
    for (uint64_t units : program.chunk_units) bytes.push_back(units * kUnit);
  }
  return bytes;
}

std::vector<Director::Chunk> DirectorChunks(const SimulatedProgram& program) {
  std::vector<Director::Chunk> chunks;
  for (uint64_t bytes : BytesOf(program)) {
    const size_t weights = program.chunk_units.size();
    const bool is_gradient = chunks.size() >= weights;
    chunks.push_back({.bytes = bytes,
                      .is_gradient = is_gradient,
                      .stays = program.weights_stay && !is_gradient,
                      .changes = program.chunk_trainable[chunks.size() % weights],
                      .copied = program.hosts_copy && !is_gradient});
  }
  return chunks;
}

class Rank {
 public:
  Rank(const SimulatedProgram& program, int rank, World* world, std::mt19937* random)
      : program_(program),
        rank_(rank),
        world_(*world),
        random_(*random),
        chunks_(static_cast<uint32_t>(program.chunk_units.size())),
        arena_bytes_(program.arena_units * kUnit),
        director_(DirectorChunks(program)),
        placer_(arena_bytes_, kUnit, BytesOf(program),
                [this](uint32_t chunk) { return Regathers(chunk); }),
        queue_(BytesOf(program)),
        device_(2 * chunks_),
        host_(2 * chunks_),
        copies_(chunks_, -1),
        pinned_(2 * chunks_),
        current_(chunks_, true),
        written_(program.parameters.size(), 0),
        reduced_(chunks_, false),
        gathers_(chunks_, 0) {
    Script();
  }

  bool done() const { return todo_.empty(); }

  // Runs the trainer's thread. False if the thread must wait, or has ended.
  bool Advance() {
    if (todo_.empty() || !todo_.front().ready()) return false;
    const Todo todo = std::move(todo_.front());
    todo_.pop_front();
    next_.clear();
    todo.act();
    todo_.insert(todo_.begin(), std::make_move_iterator(next_.begin()),
                 std::make_move_iterator(next_.end()));
    return true;
  }

  // One of the events that happen by themselves. False if this event is not possible now.
  static constexpr int kEvents = 7;
  bool Happen(int event) {
    switch (event) {
      case 0:
        return Start();
      case 1:
        return Take(&copying_, [this](uint32_t chunk) { queue_.Copied(chunk); });
      case 2:
        return TakeFront();
      case 3:
        return Take(&publishing_, [this](uint32_t chunk) { queue_.Published(chunk); });
      case 4:
        return Take(&leaving_, [this](uint32_t chunk) {
          queue_.Left(chunk);
          CheckPinned();
        });
      case 5:
        return Take(&going_home_, [this](uint32_t chunk) {
          queue_.Leaving(chunk);
          leaving_.push_back(chunk);
        });
      default:
        return Take(&updating_, [this](uint32_t chunk) { current_[chunk] = true; });
    }
  }

  const std::optional<Task>& in_collective() const { return in_collective_; }

  // Finishes a collective, which all ranks have reached.
  void FinishCollective() {
    const Task task = *std::exchange(in_collective_, std::nullopt);
    const uint32_t chunk = task.chunk;
    if (task.kind == Task::Kind::kReduce) {
      CheckReduced(chunk);
      going_home_.push_back(chunk);
    } else if (task.kind == Task::Kind::kGather) {
      NoteGather(task);
      device_[chunk] = {step_, {}};
      queue_.Publishing(chunk);
      publishing_.push_back(chunk);
    } else {
      NoteGather(task);
      host_[chunk] = {step_, {}};
      queue_.GatheredToHost(chunk);
    }
  }

 private:
  struct Todo {
    std::function<bool()> ready;
    std::function<void()> act;
  };

  // --- what happens by itself
  // ----------------------------------------------------------------------

  template <typename Act>
  bool Take(std::vector<uint32_t>* from, const Act& act) {
    if (from->empty()) return false;
    const size_t at = random_() % from->size();
    const uint32_t chunk = (*from)[at];
    from->erase(from->begin() + static_cast<int64_t>(at));
    act(chunk);
    return true;
  }

  // The mover's thread does nothing else during a collective.
  bool Start() {
    if (in_collective_) return false;
    const std::optional<Task> task =
        queue_.TakeStart([this](uint32_t chunk) { return chunk >= chunks_ || current_[chunk]; });
    if (!task) return false;
    CheckExtent(task->chunk, task->offset);
    device_[task->chunk] = {};
    copying_.push_back(task->chunk);
    return true;
  }

  bool TakeFront() {
    if (in_collective_) return false;
    const std::optional<Task> task = queue_.TakeFront(
        /*unused=*/nullptr, [this](uint32_t chunk) { return current_[chunk]; });
    if (!task) return false;
    if (task->kind == Task::Kind::kGatherToHost && !current_[task->chunk]) {
      throw Defect("weights were gathered before their update");
    }
    if (task->kind == Task::Kind::kOpen) {
      queue_.Publishing(task->chunk);
      publishing_.push_back(task->chunk);
    } else if (task->kind == Task::Kind::kDrop) {
      leaving_.push_back(task->chunk);
    } else {
      in_collective_ = task;
    }
    return true;
  }

  // --- what must hold
  // ------------------------------------------------------------------------------

  void CheckExtent(uint32_t chunk, uint64_t offset) const {
    const uint64_t end = offset + queue_.bytes(chunk);
    if (end > arena_bytes_ - reserved_) {
      throw Defect("an extent reaches into the workspace: " + std::to_string(chunk) + " at " +
                   std::to_string(offset) + " to " + std::to_string(end) + " of " +
                   std::to_string(arena_bytes_) + " less " + std::to_string(reserved_));
    }
    for (uint32_t other = 0; other < 2 * chunks_; ++other) {
      if (other == chunk || queue_.stage(other) == MoveQueue::Stage::kNone) continue;
      if (queue_.offset(other) < end && offset < queue_.offset(other) + queue_.bytes(other)) {
        throw Defect("two extents overlap");
      }
    }
    for (const auto& [id, block] : blocks_) {
      if (block.first < end && offset < block.first + block.second) {
        throw Defect("an extent overlaps a block");
      }
    }
  }

  // A weight is gathered over all ranks once between changes, and after that only from the hosts'
  // copies.
  void NoteGather(const Task& task) {
    ++gathers_[task.chunk];
    if (!program_.hosts_copy) return;
    if (task.within_host != (copies_[task.chunk] == step_)) {
      throw Defect(task.within_host ? "a host's copy is not of these weights"
                                    : "a host has a copy, and all ranks gather");
    }
    world_.result.within_hosts += task.within_host ? 1 : 0;
    copies_[task.chunk] = step_;
  }

  void CheckPinned() const {
    for (uint32_t chunk = 0; chunk < 2 * chunks_; ++chunk) {
      if (!pinned_[chunk]) continue;
      if (!queue_.Settled(chunk) || queue_.offset(chunk) != *pinned_[chunk]) {
        throw Defect("a held chunk moved or lost its extent");
      }
    }
  }

  void CheckReduced(uint32_t chunk) {
    const std::vector<int> due = due_[chunk].front();
    due_[chunk].pop_front();
    std::map<uint32_t, int> expected;
    for (uint32_t p = 0; p < program_.parameters.size(); ++p) {
      if (program_.parameters[p].chunk == chunk % chunks_ && due[p] > 0) expected[p] = due[p];
    }
    if (device_[chunk].gradients != expected) throw Defect("a gradient was lost or added twice");
  }

  void CheckWeights(const SimulatedOperator& op) const {
    for (uint32_t p : op.parameters) {
      const Content& content = device_[program_.parameters[p].chunk];
      if (content.version != step_) throw Defect("an operator read weights that are not current");
      if (content.gradients.contains(p)) throw Defect("an operator read a gradient as a weight");
    }
  }

  // --- the trainer's thread
  // ------------------------------------------------------------------------

  void Do(std::function<void()> act) {
    Wait([] { return true; }, std::move(act));
  }
  void Wait(
      std::function<bool()> ready, std::function<void()> act = [] {}) {
    next_.push_back({std::move(ready), std::move(act)});
  }

  void Script() {
    int in_step = 0;
    for (size_t m = 0; m < program_.micro_batches.size(); ++m) {
      Operators(program_.micro_batches[m].evaluated_before, m, false);
      Do([this] { Begin(); });
      Operators(program_.micro_batches[m].operators, m, true);
      Do([this, m] { End(m); });
      if (++in_step == program_.accumulate) {
        in_step = 0;
        Wait([this] { return queue_.Idle() && updating_.empty(); }, [this] { Update(); });
      }
    }
    // Work that a lambda adds by Do or Wait is inserted where the lambda ran.
    todo_.insert(todo_.end(), std::make_move_iterator(next_.begin()),
                 std::make_move_iterator(next_.end()));
    next_.clear();
  }

  void Operators(const std::vector<SimulatedOperator>& operators, size_t m, bool training) {
    for (size_t i = 0; i < operators.size(); ++i) {
      const SimulatedOperator* op = &operators[i];
      Do([this, op] { BeginOperator(*op); });
      Do([this, op, i, m] { Compute(*op, i, ExtraUnits(program_, rank_, m)); });
      Do([this, op, i, &operators] { EndOperators(operators, i); });
      for (uint32_t p : op->adds_gradients) Do([this, p] { AddGradient(p); });
      if (training && op->mate >= 0) {
        Do([this, mate = op->mate] { Free(static_cast<uint32_t>(mate)); });
      }
    }
  }

  void Run(const Steps& steps) {
    for (const Step& step : steps) RunStep(step);
  }

  void Run(const absl::StatusOr<Steps>& steps) {
    if (!steps.ok()) throw Exhausted(std::string(steps.status().message()));
    Run(*steps);
  }

  void RunStep(const Step& step) {
    const uint32_t chunk = step.chunk;
    switch (step.kind) {
      case Step::Kind::kGather:
        return Ask(Task::Kind::kGather, step);
      case Step::Kind::kGatherToHost:
        return Ask(Task::Kind::kGatherToHost, step);
      case Step::Kind::kOpen:
        return Ask(Task::Kind::kOpen, step);
      case Step::Kind::kReduce:
        return Ask(Task::Kind::kReduce, step);
      case Step::Kind::kDrop:
        return Do([this, chunk] {
          if (queue_.Drop(chunk)) leaving_.push_back(chunk);
        });
      case Step::Kind::kToHost:
        return Wait([this, chunk] { return queue_.Settled(chunk); },
                    [this, chunk] {
                      ++world_.result.to_host;
                      host_[chunk] = device_[chunk];
                      queue_.Leave(chunk);
                      leaving_.push_back(chunk);
                      CheckPinned();
                    });
      case Step::Kind::kToDevice:
        return Wait(
            [this, step] {
              return queue_.NoTask(step.chunk) &&
                     queue_.Clear(step.offset, step.offset + queue_.bytes(step.chunk));
            },
            [this, step] {
              CheckExtent(step.chunk, step.offset);
              device_[step.chunk] = host_[step.chunk];
              queue_.Occupy(step.chunk, step.offset);
              queue_.Publishing(step.chunk);
              publishing_.push_back(step.chunk);
            });
      case Step::Kind::kForget:
        return Wait([this, chunk] { return queue_.NoTask(chunk); },
                    [this, chunk] { host_[chunk] = {}; });
      case Step::Kind::kReserve:
        return Wait([this, step] { return queue_.Clear(arena_bytes_ - step.offset, arena_bytes_); },
                    [this, step] { reserved_ = step.offset; });
    }
  }

  void Ask(Task::Kind kind, const Step& step) {
    Do([this, kind, step] {
      queue_.Add({.kind = kind,
                  .chunk = step.chunk,
                  .offset = step.offset,
                  .within_host = step.within_host});
    });
  }

  bool Regathers(uint32_t chunk) {
    const bool again = program_.ranks == 1 && director_.CanGatherAgain(chunk);
    world_.result.gathered_again += again ? 1 : 0;
    return again;
  }

  Placer::IsHeld HeldByOthers(const std::vector<uint32_t>& chunks) const {
    return [this, chunks](uint32_t chunk) {
      const bool mine = std::ranges::find(chunks, chunk) != chunks.end();
      return director_.holders(chunk) > (mine ? 1 : 0);
    };
  }

  void Begin() {
    std::fill(written_.begin(), written_.end(), 0);
    std::fill(reduced_.begin(), reduced_.end(), false);
    top_units_ = 0;
    workspace_grew_ = false;
    Run(placer_.Place(director_.BeginMicroBatch()));
    began_following_ = director_.state() == Director::State::kFollowing;
  }

  void BeginOperator(const SimulatedOperator& op) {
    const bool evaluate = op.kind == Kind::kEvaluate;
    if (evaluate) by_plan_alone_ = false;
    if (evaluate) {
      std::vector<Moment> sample = director_.TakeEvaluationSample(/*end=*/false);
      if (!sample.empty()) {
        PlanEvaluation(std::move(sample));
        return Do([this, &op] { BeginOperator(op); });
      }
    }
    const std::vector<uint32_t> chunks = ChunksOf(program_, op);
    Moves moves = director_.BeginOperator(evaluate, chunks);
    const auto loads =
        std::ranges::find_if(moves, [](const Move& move) { return !move.makes_room(); });
    Run(placer_.Place(Moves(moves.begin(), loads)));
    const uint64_t planned =
        director_.following() ? director_.followed().workspace_bytes(director_.moment()) : 0;
    world_.result.evaluated_by_plan += director_.following() && evaluate ? 1 : 0;
    const Placer::IsHeld held = HeldByOthers(chunks);
    Run(placer_.Reserve(top_units_ * kUnit, planned, held));
    if (!director_.following() || workspace_grew_) {
      // Sometimes there is no host memory for this.
      Run(placer_.MakeWay(chunks, arena_bytes_, held, [this](auto) { return random_() % 4 != 0; }));
    }
    Run(placer_.Place(Moves(loads, moves.end())));
    Run(placer_.Load(chunks, held));
    for (uint32_t chunk : chunks) Wait([this, chunk] { return queue_.Settled(chunk); });
    Do([this, chunks, &op] {
      CheckWeights(op);
      for (uint32_t chunk : chunks) pinned_[chunk] = queue_.offset(chunk);
      CheckPinned();
    });
  }

  void Allocate(uint32_t id, uint64_t units) {
    if (units == 0) return;
    const auto held = [this](uint32_t chunk) { return director_.holders(chunk) > 0; };
    const absl::StatusOr<Steps> steps =
        placer_.Reserve((top_units_ + units) * kUnit, placer_.reserved_bytes(), held);
    if (steps.ok()) {
      top_units_ += units;
      tops_[id] = units;
      Run(*steps);
    } else {
      const absl::StatusOr<Placer::Block> block = placer_.PlaceBlock(id, units * kUnit, held);
      if (!block.ok()) throw Exhausted(std::string(block.status().message()));
      Run(block->steps);
      Wait([this, offset = block->offset,
            units] { return queue_.Clear(offset, offset + units * kUnit); },
           [this, id, offset = block->offset, units] {
             blocks_[id] = {offset, units * kUnit};
           });
      block_units_ += units;
    }
    const uint64_t bytes = (top_units_ + block_units_) * kUnit;
    workspace_grew_ |= director_.following() && !director_.evaluating() &&
                       bytes > director_.followed().workspace_bytes(director_.moment());
    director_.recorder().NoteWorkspace(bytes);
  }

  void Free(uint32_t id) {
    const auto top = tops_.find(id);
    if (top != tops_.end()) {
      top_units_ -= top->second;
      tops_.erase(top);
      return;
    }
    const auto block = blocks_.find(id);
    if (block == blocks_.end()) return;
    placer_.FreeBlock(id);
    block_units_ -= block->second.second / kUnit;
    blocks_.erase(block);
  }

  static constexpr uint32_t kScratch = 1000;

  void Compute(const SimulatedOperator& op, size_t index, uint64_t extra) {
    director_.recorder().NoteWorkspace((top_units_ + block_units_) * kUnit);
    if (op.keeps_units > 0) Allocate(static_cast<uint32_t>(index), op.keeps_units + extra);
    Allocate(kScratch, op.scratch_units);
    Do([this, &op] {
      Free(kScratch);
      CheckWeights(op);
      if (op.kind != Kind::kBackward || !op.writes_gradients) return;
      for (uint32_t p : op.parameters) {
        if (program_.parameters[p].trainable) WriteGradient(p);
      }
    });
  }

  uint32_t GradientChunk(uint32_t chunk) const {
    return IsSeparate(program_, chunk) ? chunk + chunks_ : chunk;
  }

  void WriteGradient(uint32_t p) {
    const uint32_t chunk = GradientChunk(program_.parameters[p].chunk);
    if (!queue_.Settled(chunk)) throw Defect("a gradient is written where nothing is");
    ++device_[chunk].gradients[p];
    ++written_[p];
    director_.NoteGradient(chunk);
  }

  bool Complete(uint32_t chunk) const {
    for (uint32_t p = 0; p < program_.parameters.size(); ++p) {
      const SimulatedParameter& parameter = program_.parameters[p];
      if (parameter.chunk != chunk || !parameter.trainable) continue;
      if (parameter.backward_uses == 0 || written_[p] < parameter.backward_uses) return false;
    }
    return program_.chunk_trainable[chunk];
  }

  void EndOperators(const std::vector<SimulatedOperator>& operators, size_t index) {
    for (size_t i = 0; i <= index; ++i) {
      if (i + static_cast<size_t>(operators[i].open_for) != index) continue;
      for (uint32_t chunk : ChunksOf(program_, operators[i])) {
        director_.Release(chunk);
        if (director_.holders(chunk) > 0) continue;
        pinned_[chunk].reset();
        ReduceIfComplete(chunk % chunks_);
      }
    }
  }

  void ReduceIfComplete(uint32_t chunk) {
    const uint32_t gradient = GradientChunk(chunk);
    if (!Complete(chunk) || reduced_[chunk] || director_.holders(gradient) > 0) return;
    Reduce(chunk);
  }

  void Reduce(uint32_t chunk) {
    reduced_[chunk] = true;
    due_[GradientChunk(chunk)].push_back(written_);
    Run(placer_.Place(director_.Reduce(GradientChunk(chunk))));
  }

  void AddGradient(uint32_t p) {
    const uint32_t chunk = GradientChunk(program_.parameters[p].chunk);
    Open(chunk, /*planned=*/true);
    Do([this, p] {
      WriteGradient(p);
      ReduceIfComplete(program_.parameters[p].chunk);
    });
  }

  void Open(uint32_t chunk, bool planned) {
    const auto held = [this](uint32_t other) { return director_.holders(other) > 0; };
    Run(placer_.Reserve(top_units_ * kUnit, placer_.reserved_bytes(), held));
    Run(placer_.Place(director_.OpenGradient(chunk, planned)));
    Run(placer_.Load(std::vector<uint32_t>{chunk}, held));
    Wait([this, chunk] { return queue_.Settled(chunk); });
  }

  void End(size_t m) {
    Run(placer_.Place(director_.EndOperators()));
    for (uint32_t chunk = 0; chunk < chunks_; ++chunk) {
      if (!program_.chunk_trainable[chunk] || reduced_[chunk]) continue;
      Do([this, chunk] {
        Open(GradientChunk(chunk), /*planned=*/false);
        Do([this, chunk] { Reduce(chunk); });
      });
    }
    Do([this, m] { EndMicroBatch(m); });
  }

  void EndMicroBatch(size_t m) {
    Run(placer_.Place(director_.EndMicroBatch()));
    CheckOutcome(m);
    bool any_grew = false;
    for (int r = 0; r < program_.ranks; ++r) any_grew |= ExtraUnits(program_, r, m) > 0;
    if (!director_.wants_plan() && !any_grew) return;
    Wait([this] { return queue_.Idle(); },
         [this, m] {
           Meet(director_.training_recorder().Moments(), [this, m](const PlannedRun& run) {
             ++world_.result.plans;
             world_.result.plans_with_homes += run.has_homes() ? 1 : 0;
             by_plan_alone_ = false;
             planned_for_ = m;
             Run(placer_.Place(director_.PutInForce(run)));
           });
         });
  }

  void PlanEvaluation(std::vector<Moment> sample) {
    Meet(std::move(sample), [this](const PlannedRun& run) { director_.SetEvaluationPlan(run); });
  }

  void Meet(std::vector<Moment> moments, std::function<void(const PlannedRun&)> then) {
    const int id = ++meetings_;
    const bool evaluation = director_.evaluating();
    Meeting& meeting = world_.meetings[id];
    meeting.moments.resize(static_cast<size_t>(program_.ranks));
    meeting.moments[static_cast<size_t>(rank_)] = std::move(moments);
    Wait(
        [&meeting] {
          return std::ranges::none_of(meeting.moments, [](const auto& m) { return m.empty(); });
        },
        [this, &meeting, then = std::move(then), evaluation] {
          if (!meeting.plan) meeting.plan = world_.MakePlan(meeting, evaluation);
          if (meeting.plan->has_value()) return then(**meeting.plan);
          if (!evaluation) director_.PlanRefused();
        });
  }

  // Checks whether the micro-batch followed the plan that was made from it.
  void CheckOutcome(size_t m) {
    const bool followed = director_.outcome() == Director::Outcome::kFollowed;
    world_.result.followed += followed ? 1 : 0;
    by_plan_alone_ = by_plan_alone_ && began_following_ && followed;
    if (!planned_for_) return;
    const std::vector<SimulatedOperator>& operators = program_.micro_batches[m].operators;
    if (operators != program_.micro_batches[*planned_for_].operators) return;
    const bool evaluates_inside = std::ranges::any_of(
        operators, [](const SimulatedOperator& op) { return op.kind == Kind::kEvaluate; });
    if (program_.nested && evaluates_inside) return;
    if (!began_following_ || !followed) throw Defect("a plan that could be followed was lost");
  }

  void CheckGathers() {
    const bool once = std::ranges::none_of(gathers_, [](int times) { return times > 1; });
    if (program_.weights_stay && by_plan_alone_ && !once) {
      throw Defect("what stays was gathered twice between updates");
    }
    std::fill(gathers_.begin(), gathers_.end(), 0);
    by_plan_alone_ = true;
  }

  void Update() {
    CheckGathers();
    Run(placer_.Place(director_.ChangeWeights()));
    ++step_;
    for (uint32_t chunk = 0; chunk < chunks_; ++chunk) {
      if (!program_.chunk_trainable[chunk]) {
        if (queue_.stage(chunk) != MoveQueue::Stage::kNone) device_[chunk].version = step_;
        host_[chunk].version = step_;
        if (copies_[chunk] >= 0) copies_[chunk] = step_;
        continue;
      }
      current_[chunk] = false;
      updating_.push_back(chunk);
    }
  }

  const SimulatedProgram& program_;
  const int rank_;
  World& world_;
  std::mt19937& random_;
  const uint32_t chunks_;
  const uint64_t arena_bytes_;
  Director director_;
  Placer placer_;
  MoveQueue queue_;

  std::deque<Todo> todo_;
  std::vector<Todo> next_;
  std::vector<uint32_t> copying_, publishing_, leaving_, going_home_, updating_;
  std::optional<Task> in_collective_;
  std::vector<Content> device_, host_;
  std::vector<int> copies_;                      // the version of the host's copy of each
  std::vector<std::optional<uint64_t>> pinned_;  // the place that an operator was given
  uint64_t reserved_ = 0;
  bool workspace_grew_ = false;  // beyond the plan, in this micro-batch
  uint64_t top_units_ = 0, block_units_ = 0;
  std::map<uint32_t, uint64_t> tops_;
  std::map<uint32_t, std::pair<uint64_t, uint64_t>> blocks_;
  int step_ = 0;
  int meetings_ = 0;
  bool began_following_ = false;
  std::optional<size_t> planned_for_;
  std::vector<bool> current_;
  std::vector<int> written_;
  std::vector<bool> reduced_;
  std::vector<int> gathers_;   // of this step
  bool by_plan_alone_ = true;  // this step: no evaluation, no new plan, all of it followed
  std::map<uint32_t, std::deque<std::vector<int>>> due_;
};

void CheckSame(const Task& a, const Task& b) {
  const auto reduces = [](const Task& task) { return task.kind == Task::Kind::kReduce; };
  if (a.chunk != b.chunk || reduces(a) != reduces(b) || a.within_host != b.within_host) {
    throw Defect("the ranks meet in different collectives: " + std::to_string(a.chunk) + " kind " +
                 std::to_string(static_cast<int>(a.kind)) + " number " + std::to_string(a.number) +
                 " and " + std::to_string(b.chunk) + " kind " +
                 std::to_string(static_cast<int>(b.kind)) + " number " + std::to_string(b.number));
  }
}

void RunAll(std::vector<std::unique_ptr<Rank>>* ranks, std::mt19937* random) {
  const size_t count = ranks->size();
  const size_t kinds = Rank::kEvents + 1;
  std::vector<size_t> order(count * kinds);
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (;;) {
    const bool all_meet = std::ranges::all_of(
        *ranks, [](const auto& rank) { return rank->in_collective().has_value(); });
    if (all_meet) {
      for (const auto& rank : *ranks) {
        CheckSame(*ranks->front()->in_collective(), *rank->in_collective());
      }
      for (const auto& rank : *ranks) rank->FinishCollective();
      continue;
    }
    bool progress = false;
    const size_t first = (*random)() % order.size();
    for (size_t i = 0; i < order.size() && !progress; ++i) {
      const size_t choice = (first + i * 7) % order.size();
      Rank& rank = *(*ranks)[choice % count];
      const int event = static_cast<int>(choice / count);
      progress = event == Rank::kEvents ? rank.Advance() : rank.Happen(event);
    }
    if (progress) continue;
    if (std::ranges::all_of(*ranks, [](const auto& rank) { return rank->done(); })) return;
    throw Defect("nothing can go on");
  }
}

}  // namespace

SimulationResult Simulate(const SimulatedProgram& program, uint32_t seed) {
  std::mt19937 random(seed);
  World world;
  world.program = &program;
  world.policy = random() % 3 == 0 ? planner::Policy::kCpu : planner::Policy::kAuto;
  try {
    std::vector<std::unique_ptr<Rank>> ranks;
    for (int r = 0; r < program.ranks; ++r) {
      ranks.push_back(std::make_unique<Rank>(program, r, &world, &random));
    }
    RunAll(&ranks, &random);
  } catch (const Defect& defect) {
    world.result.defect = defect.what();
  } catch (const Exhausted& exhausted) {
    world.result.exhausted = exhausted.what();
  }
  return world.result;
}

}  // namespace geminid::zero
