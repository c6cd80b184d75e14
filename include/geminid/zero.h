// ZeRO on chunks: train parameters whose state is sharded over the ranks and does not fit the
// device.
//
// The parameters are packed, in the order given, into chunks. Each rank keeps its shard of every
// chunk: the weight, the bits that its fp32 master has beyond that, and the optimizer's state. With
// Adam's moments these take 12 bytes per parameter (Options::state_type). The reduced gradient
// comes on top.
//
// A micro-batch is one forward and backward pass; a step of the optimizer has one or more. An
// operator is the work between a Use and its Finish, as a layer's forward, and each Use begins a
// moment of the micro-batch. An operator's chunks are gathered on the device. The first micro-batch
// is sampled. From then on a plan says, by moments, what to gather ahead and what to keep; a new
// plan is made when steps no longer fit it. Placement never changes a bit of the results.
//
// One training step of a rank:
//
//   for each micro-batch:
//     engine->BeginMicroBatch();
//     forward:   { auto op = engine->Use(Pass::kForward, {w}); compute with op.Weight(w); }
//     backward:  { auto op = engine->Use(Pass::kBackward, {w});
//                  read op.Weight(w); write op.Gradient(w), the same storage as a rule;
//                  op.GradientWritten(w); }
//   engine->Step(learning_rate);   // clips, commits; the update itself overlaps the next forward
//
// The gradient of a step is the mean of the ranks' gradients, and the mean or the sum of those of
// its micro-batches. A trained parameter that no operator gave a gradient has one of zeros.
//
// Operators may overlap: Use may be called while earlier Operations are open, also on the same
// parameters. Evaluation may come at any time, within a micro-batch too, though not of weights
// whose gradients are in their place.
//
// Threads: any thread may call; calls are carried out one after the other. health and GetStatistics
// alone do not wait for the call before: they answer while it hangs. What the engine calls, as a
// Fill, Options::clock or Admission::on_wait, may call these two and nothing else of the engine.
//
// Blocking: Use waits until the parameters are on the device, Step until every gradient of the step
// is reduced. When nothing happens for Options::timeout they return DEADLINE_EXCEEDED and say what
// they waited for. All ranks must make the same calls in the same order: ranks that do not get
// INVALID_ARGUMENT saying who did what, before a weight changes.
//
// Errors: a call that is refused for what it was given (INVALID_ARGUMENT, FAILED_PRECONDITION)
// changes nothing, and the engine goes on. After any other error it stays failed: every later call
// returns the same status, on all ranks. Engine::health tells them apart whatever the code: OK
// after an error means that the call was refused.
#ifndef GEMINID_ZERO_H_
#define GEMINID_ZERO_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "geminid/activation_stack.h"
#include "geminid/data_type.h"
#include "geminid/export.h"
#include "geminid/loss_scaler.h"
#include "geminid/model_state.h"
#include "geminid/optimizer.h"
#include "geminid/statistics.h"
#include "geminid/step_result.h"
#include "geminid/stream.h"
#include "geminid/tensor_piece.h"
#include "geminid/workspace.h"

namespace geminid {
class Session;
namespace collectives {
class Communicator;
}  // namespace collectives
}  // namespace geminid

namespace geminid::zero {

class EngineImpl;  // of the library

enum class Pass { kForward, kBackward, kEvaluate };

enum class Placement {
  kDevice,  // everything on the device, always
  kCpu,     // weights leave the device after each operator
  kAuto,    // what the plan says
};

// Where the optimizer's state and update are with placement kAuto. Whole chunks move to the device,
// first those whose gradients come last.
enum class StatePlacement {
  kAuto,    // as many on the device as shorten the step or, if none does, move the fewest bytes
  kHost,    // none on the device
  kDevice,  // all, from the start: no host memory is used for state
  kShare,   // as many as fit Options::state_share of the margin
  // Those of kShare are on the device. The state of the others lies on the host, and the device
  // updates it: it goes there slice by slice and comes back. The three places that it goes through
  // take a sixteenth of the arena, or 48 KiB (AdamW, bf16) if that is more. With AdamW and bf16
  // this moves 14 bytes of each parameter to the device and 12 back, in place of 28 bytes that the
  // processor reads and writes. With placement kCpu too.
  kStreamed,
  // Weights lie on the host, and all other state of what is trained on disk: with AdamW and bf16 10
  // of 12 bytes per parameter, which the processor updates. Not with optimizers that NeedsSums, nor
  // MuonOptions. kAuto with folders has so the last chunks, the fewest for which this rank's share
  // of the host memory that the daemon may hand out to the job on this node holds the rest.
  kDisk,
};

// Where StatePlacement::kDisk has state, and kAuto what host memory does not hold.
struct StateDisk {
  // One on each disk, over which the bytes are spread evenly. This rank has a file in each, whose
  // space is taken when the engine is made. Ranks may name the same folders. In a session that a
  // successor may take over the files have names, and wait for it; else they have none, and are
  // gone when this process ends, however it ends.
  std::vector<std::string> folders{};
  uint64_t limit_bytes = 0;  // of this rank's files; 0: what the disks have
  // What this rank may write to them; 0: any number. A step that would write more is
  // RESOURCE_EXHAUSTED on all ranks, and changes nothing.
  uint64_t endurance_bytes = 0;
};

// When parameters are updated, and with that how much of the gradient is kept.
enum class UpdateTime {
  kAfterStep,  // a step as a whole or not at all: its gradient is kept until Step
  // Chunk by chunk, each as soon as its gradient is reduced: 2 bytes less of host memory for each
  // parameter in bf16. The bits are those of kAfterStep. Only where nothing must be known of the
  // whole gradient first: no clipping, no loss scaling, one micro-batch per step, no optimizer that
  // NeedsSums, and no Parameter::update_without_gradient that is false. What it costs:
  // from the first update on a step can only be completed. CancelMicroBatch, operators that use
  // what is updated, ReadGradient and WriteGradient are refused. A gradient that is not finite is
  // DATA_LOSS, not StepResult::overflow. A run that ends in between has its last checkpoint alone.
  kInBackward,
};

// ZeRO's stages: what of the model's data each rank has its shard of alone, and with that how often
// ranks exchange it. The optimizer's state is shared out in each, and is what is committed, saved
// and resumed: a run may go on in another stage.
enum class Stage {
  // As kGradients, but where a step has several micro-batches each rank adds up their gradients,
  // whole and in fp32, on the device: 4 bytes per element of the arena. The last micro-batch rounds
  // the mean to the gradient's type and adds it over the ranks: its bits are not those of the other
  // stages, which round each micro-batch. A step has exactly Options::accumulate micro-batches
  // then.
  kState = 1,
  // Weights are gathered once after each update, and once more after an evaluation between steps.
  // Gradients have a place beside their weights, and are added over the ranks in each micro-batch:
  // the bits are those of kWeights. Weights and the gradients of a moment together should fit the
  // device: what does not is moved to host memory and back, whole, and nothing is fetched ahead.
  kGradients = 2,
  // Gathered for the operators that use it, again in each micro-batch and in its backward pass
  // where they do not fit the device.
  kWeights = 3,
};

// How a step's gradient follows from those of its micro-batches.
enum class GradientScale { kMean, kSum };

// What Step does where the gradient has an element that is not finite.
enum class NotFinite {
  kSkip,  // leaves the weights as they are, and says StepResult::overflow
  // Updates with it, as PyTorch does; not with an optimizer that NeedsSums. Clipped by a norm that
  // is NaN, all weights are NaN then.
  kWrite,
  // FAILED_PRECONDITION naming a parameter: nothing has changed. CancelMicroBatch gives the step
  // up; so does correcting its gradients with WriteGradient and calling Step again.
  kFail,
};

struct Parameter {
  std::string name{};
  std::vector<int64_t> shape{};
  // Of weight and gradient, in place of Options::data_type: fp32 norms and routers beside bf16, or
  // a frozen base of 8 bits. A trained parameter has an fp32 master in either of its types.
  std::optional<DataType> data_type = std::nullopt;
  // The same for parameters that are used together, as those of a block: they share chunks with
  // each other alone, so that no others are gathered and held with them. A unit with very few
  // elements of a data type shares their chunk with others all the same.
  std::optional<uint32_t> unit = std::nullopt;
  bool trainable = true;
  bool decay = true;                                  // subject to weight decay
  std::optional<double> weight_decay = std::nullopt;  // in place of the optimizer's
  double learning_rate_scale = 1;
  // How often it is given a gradient in one micro-batch: after so many times that is complete. 0:
  // any number of times, complete when the micro-batch ends.
  int backward_uses = 1;
  // The gradient takes the place of the weight, which no operator may read after it in this
  // micro-batch; those that add to it may still be begun. True, or no backward_uses, or a stage
  // below Stage::kWeights: it has a place of its own beside it, as have those of all parameters in
  // the chunk.
  bool separate_gradient = false;
  // A step in which no rank gave it a gradient changes it as a gradient of zeros would. False: it,
  // and its state, stay as they are, and the step does not count among its updates (`t` in
  // geminid/optimizer.h).
  bool update_without_gradient = true;
  size_t group = 0;  // of StepInput::groups
  // With MuonOptions: its update is made orthogonal. Its last two dimensions are a matrix, those
  // before count matrices, as a layer's experts. Whole matrices lie on one rank: a chunk has room
  // for the largest on each. False: AdamW, as for embeddings, output layers, norms and biases. No
  // other optimizer looks at it.
  bool orthogonal = false;
  // With Options::model: what it has of its tensors; elements in no piece are never updated. Unset:
  // it is the tensor of its name.
  std::optional<std::vector<TensorPiece>> pieces = std::nullopt;
  // And whether its elements count in sums over whole tensors. Where ranks of different engines
  // have the same elements, one of them says true.
  bool counts = true;
};

inline constexpr int kMaxUpdateThreads = 1024;

struct Options {
  DataType data_type = DataType::kBFloat16;  // of parameters that name none
  Stage stage = Stage::kWeights;             // the same on all ranks
  Placement placement = Placement::kAuto;    // kCpu: in Stage::kWeights alone
  double clip_norm = 1.0;                    // 0: gradients are not clipped
  // Micro-batches per step as a rule; Step may come earlier or later, but in Stage::kState. 1:
  // always one, and gradients are not summed in fp32.
  int accumulate = 1;
  // Above 1: a micro-batch gives gradients to one of so many parts of the parameters, the same part
  // on all ranks. So does a pipeline whose stages go back through several parts one by one. The
  // other chunks keep their sums, and a micro-batch counts as 1 / micro_batch_parts of one. Only
  // with `accumulate` above 1.
  int micro_batch_parts = 1;
  GradientScale gradient_scale = GradientScale::kMean;
  UpdateTime update = UpdateTime::kAfterStep;
  Optimizer optimizer{};  // AdamW unless another one is given
  // Of the optimizer's arrays between steps: kFloat32, or kBFloat16 in half the bytes. A step
  // rounds to it at random with an exact mean, by a hash of the parameter's name, the element and
  // the update: bits depend on nothing else. Refused where CheckStateType does.
  DataType state_type = DataType::kFloat32;
  // Gradients arrive multiplied by loss_scale() and are divided by it in the update. Only with
  // NotFinite::kSkip.
  std::optional<LossScalerOptions> loss_scale{};
  NotFinite not_finite = NotFinite::kSkip;  // with UpdateTime::kInBackward it is DATA_LOSS always
  StatePlacement state_placement = StatePlacement::kAuto;
  // kShare, kStreamed: 0 to 1, of what the arena has beyond its fullest moment in the sample.
  double state_share = 0;
  StateDisk state_disk{};       // with kDisk or kAuto; folders on all ranks or on none
  uint64_t chunk_elements = 0;  // 0: search for the size that wastes least
  // Each weight and each gradient is at the same address whenever it is on the device. At any other
  // time touching that address is a fault, until the engine fails. This takes as many addresses as
  // they have bytes, and a few system calls when a chunk comes or goes. UNIMPLEMENTED on a GPU.
  bool stable_addresses = false;
  int max_lookahead_moments = 8;
  int update_threads = 1;  // that the update runs on; changes no bit
  // With a session that has ConnectOptions::keep_on_death and a run. Create takes over from the
  // processes that had these ranks before, if each of them left its state and had committed a step.
  // It finishes the last step that any of them had committed. Then resumed() says which step that
  // is, the state is that of an undisturbed run after it, and Initialize is refused. Otherwise
  // Create frees what was left and begins anew. The same on all ranks; so are data_position and
  // random_state then.
  bool resume = false;
  // Where this engine trains a part of a model: the ranks of all parts. They resume together, after
  // the last step that any of them had committed, or begin anew together. Only where nobody has
  // committed a step before all of them knew its GradientNorm (StepInput::gradient_norm), without
  // groups and in sessions that do not give way (Admission::preemptible). What WriteGradient
  // changes is changed on all ranks before any of them commits. Used in Create alone, which is a
  // collective of all these ranks then; its error aborts them. With `model` Step is one, too. Null:
  // its own ranks.
  collectives::Communicator* all_ranks = nullptr;
  // Stage::kWeights on several hosts: of `communicator` the ranks that share this rank's host, this
  // one among them, and as many on each host. Weights are gathered over all ranks once after each
  // update. From then on each rank of a host keeps an equal part of them in host memory
  // (Statistics::host_shard_bytes). The backward pass, further micro-batches and evaluations gather
  // them from these ranks alone. The bits stay the same. A rank that is alone on its host keeps all
  // weights, and receives none again. Used in Create alone, by all ranks or by none. Null: every
  // gather is over all ranks.
  collectives::Communicator* host_ranks = nullptr;
  // With all_ranks and an optimizer that NeedsSums: the whole model's tensors, the same
  // on all of them. What is said of a tensor here counts, not what the parameters that have pieces
  // of it say (Parameter::pieces). Norms, rows and columns are those of these tensors, added up
  // over all ranks in a fixed order. Every rank keeps the numbers of every tensor, so that Progress
  // is that of one engine with all of the model. Each element of what is trained must count on one
  // rank: INVALID_ARGUMENT where more or fewer of a tensor's elements count than it has.
  std::vector<Parameter> model{};
  // The clock that steps and stalls are timed by; empty: a monotonic one. Called on the threads of
  // the trainer and of its streams, not twice at once.
  std::function<absl::Time()> clock{};
  // A call fails when nothing that it waits for makes progress for so long. Planning must take
  // less.
  absl::Duration timeout = absl::Minutes(5);
};

// The parameters of one operator, on the device while this lives. Move-only; assigning finishes the
// one that was there. Pointers are to whole row-major tensors of the parameter's data type, aligned
// to 64 bytes, valid until Finish. Once the Operation has finished or been moved from, or its
// engine has ended, pointers are null and calls fail.
class GEMINID_EXPORT Operation {
 public:
  Operation(Operation&&) noexcept;
  Operation& operator=(Operation&&) noexcept;
  ~Operation();  // finishes; an error is returned by the engine's next call

  // Null for a parameter that the operator does not have, or whose gradient is in its place.
  const std::byte* Weight(ParameterId id) const;

  // Where the gradient goes: the weight's own storage, so read the weight first, or one of its own
  // (Parameter::separate_gradient, and in Stages below kWeights). Kernels must add to what is there
  // when GradientAccumulates says so, and overwrite it otherwise. Null but for trained parameters
  // in kBackward.
  std::byte* Gradient(ParameterId id);
  bool GradientAccumulates(ParameterId id) const;

  // Copies the weight to memory of the caller's, on the device or the host: queued on the stream
  // that Use was given, without one it is there on return. INVALID_ARGUMENT where Weight is null.
  absl::Status CopyWeight(ParameterId id, std::byte* to) const;

  // The gradient of one use is complete: call it once for each parameter that was given one here.
  absl::Status GradientWritten(ParameterId id);

  // Gives the parameters back. Work that uses them must be complete, or be queued on the stream
  // that Use was given.
  absl::Status Finish();
  // Or on this one. Does not wait for it.
  absl::Status Finish(StreamHandle stream);

 private:
  friend class Engine;
  friend class EngineImpl;
  struct State;
  explicit Operation(std::unique_ptr<State> state);
  absl::Status FinishOn(Stream* stream);
  void FinishIfOpen();
  std::unique_ptr<State> state_;
};

class GEMINID_EXPORT Engine : public ModelState {
 public:
  // Packs the parameters, allocates their state through the session, and zeroes it. `session` must
  // have an arena and, like `communicator`, outlive the engine. The arena is the engine's while it
  // lives: chunks of the trainer's own are evicted from it, and must be clean and not leased.
  // Errors: RESOURCE_EXHAUSTED with the numbers and the smallest arena that would do.
  // INVALID_ARGUMENT for parameters or options that cannot be, or are not the same on all ranks,
  // with what each of them has. Any error while it resumes (Options::resume) leaves the session,
  // and the state in it, to the next process: see Session::LeaveToSuccessor.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(Session* session,
                                                        collectives::Communicator* communicator,
                                                        std::vector<Parameter> parameters,
                                                        Options options);
  // Its memory goes back to the session, which may have another engine then; that of one that has
  // failed, with the session.
  ~Engine() override = default;

  // As Initialize, but `fill` is called for those elements alone that this rank keeps: `values`
  // are those from `first` on. No more memory is taken than one call's values.
  using FillRange =
      std::function<absl::Status(ParameterId id, uint64_t first, std::span<float> values)>;
  virtual absl::Status InitializeShards(const FillRange& fill) = 0;

  // What one group of parameters is updated with.
  struct GroupInput {
    double learning_rate = 0;
    std::optional<double> weight_decay = std::nullopt;  // in place of the parameters' own
    // In place of the optimizer's, which must have them, and of state as many arrays:
    // INVALID_ARGUMENT otherwise. beta1 is SGD's and LARS's momentum, too.
    std::optional<double> beta1 = std::nullopt;
    std::optional<double> beta2 = std::nullopt;
    std::optional<double> epsilon = std::nullopt;

    bool operator==(const GroupInput&) const = default;
  };
  // What a step is made with. All ranks are given the same, but for the last two. Step and
  // BeginStep compare it: INVALID_ARGUMENT names what differs and what each rank has, and nothing
  // has changed.
  struct StepInput {
    double learning_rate = 0;
    // By Parameter::group, in place of learning_rate; empty: that one for all.
    std::vector<GroupInput> groups{};
    std::optional<double> clip_norm = std::nullopt;  // in place of Options::clip_norm
    // Where this engine trains a part of a model: the norm of the whole model's gradient, which
    // decides on clipping and overflow in place of its own. The same on all ranks.
    std::optional<double> gradient_norm = std::nullopt;
    // What the trainer has multiplied the step's gradients by, beside loss_scale(). Norm, clipping
    // and update are those of the gradients divided by it; GradientNorm, ReadGradient and
    // WriteGradient, which come before, have them multiplied. Above 0; 1 with
    // UpdateTime::kInBackward.
    double gradient_scale = 1;
    uint64_t data_position = 0;
    std::array<uint64_t, 4> random_state = {};
  };

  // UpdateTime::kInBackward: with what the step's updates are made, before its micro-batch; Step is
  // given the same rates. Else it changes nothing. Between steps.
  virtual absl::Status BeginStep(const StepInput& input) = 0;

  // Ends the micro-batch before, if there is one. No Operation may be open.
  virtual absl::Status BeginMicroBatch() = 0;
  // Gives up the step's micro-batches so far, as after an exception in one: their gradients are
  // lost, and the step begins again with the next one. No Operation may be open. All ranks must.
  // FAILED_PRECONDITION once an update has begun (UpdateTime::kInBackward).
  virtual absl::Status CancelMicroBatch() = 0;

  // The next operator. Waits until its parameters are on the device. RESOURCE_EXHAUSTED where they
  // do not fit beside what is held and the workspace in use: nothing has changed then. The operator
  // may be split, more be finished or freed, the micro-batch cancelled, on all ranks alike.
  virtual absl::StatusOr<Operation> Use(Pass pass, std::span<const ParameterId> parameters) = 0;

  // The same, on a stream: what is queued there from now on waits for the parameters, and this
  // returns at once, with their addresses. It blocks only where room must be made for it that
  // earlier work still uses. Operators are timed by when the stream gets to them.
  //
  // Memory is used again in the order of streams. A chunk's is when the stream of its Finish has
  // got there; a block's when all streams have got to where they were when it was given back. But
  // blocks are handed out again in the order of calls: a trainer with several streams, or with
  // calls without one, must order their work by that. Streams live until Synchronize. What goes
  // wrong later is returned by the next call: streams do not hang then, but their results are void.
  virtual absl::StatusOr<Operation> Use(Pass pass, std::span<const ParameterId> parameters,
                                        StreamHandle stream) = 0;

  // Adds to the gradient of a parameter that has a place of its own for it, as a GradientWritten
  // would: the whole tensor, copied before this returns. In a micro-batch, within an Operation or
  // not. In bf16 each sum is rounded, as kernels round theirs.
  virtual absl::Status AddGradient(ParameterId id, std::span<const std::byte> gradient,
                                   DataType type) = 0;
  // The same, on a stream, which must get through with the gradient before that is changed or
  // freed. It may be on the device.
  virtual absl::Status AddGradient(ParameterId id, std::span<const std::byte> gradient,
                                   DataType type, StreamHandle stream) = 0;

  // Waits for all that was queued on the streams given to this engine, which may end after it.
  // DEADLINE_EXCEEDED when nothing goes on for Options::timeout; else the engine's state. Step,
  // GradientNorm and CancelMicroBatch begin with it.
  virtual absl::Status Synchronize() = 0;

  // The address that Operation::Weight returns for it. Null without Options::stable_addresses.
  virtual const std::byte* StableAddress(ParameterId id) const = 0;

  // Device memory that the chunks of these weights and of the gradients of these take together.
  virtual uint64_t DeviceBytes(std::span<const ParameterId> weights,
                               std::span<const ParameterId> gradients) const = 0;

  virtual Workspace& workspace() = 0;

  // For what the forward pass leaves for the backward pass and the arena has no room for. All ranks
  // make one, before the first micro-batch, at most once. It and its places, the bottom of the
  // arena, are the engine's as long as that lives. RESOURCE_EXHAUSTED with the numbers where one
  // rank lacks memory: nothing has changed on any.
  virtual absl::StatusOr<ActivationStack*> MakeActivationStack(const ActivationShape& shape) = 0;

  // For trainers with an allocator of their own: the bytes of non-model device memory used since
  // the last call of Use. Must be called before they are used.
  virtual absl::Status ReportWorkspace(uint64_t bytes) = 0;

  // Ends the step: waits for the gradients, agrees with the other ranks on norm and overflow,
  // commits, and starts the update, which the next forward waits for chunk by chunk.
  // `data_position` and `random_state` are recorded with the commit.
  virtual absl::StatusOr<StepResult> Step(const StepInput& input) = 0;

  // The norm that Step would return now, before clipping: ends the step's last micro-batch and
  // waits for its gradients. Between it and Step only evaluation may come, ReadGradient and
  // WriteGradient.
  virtual absl::StatusOr<double> GradientNorm() = 0;

  // What the trainer must multiply the gradient of its loss by, until the next Step; 1 without loss
  // scaling. The same on all ranks.
  virtual double loss_scale() const = 0;

  // This rank's shards of the step's gradients, between GradientNorm and Step: reduced, unscaled,
  // as they will be clipped. They are rounded to how they are kept: with one micro-batch per step
  // and in Stage::kState in the parameter's data type, else in fp32. Step measures the norm anew,
  // and GradientNorm can be asked for it. Of trained parameters alone.
  virtual absl::Status ReadGradient(ParameterId id, uint64_t offset, std::span<float> values) = 0;
  virtual absl::Status WriteGradient(ParameterId id, uint64_t offset,
                                     std::span<const float> values) = 0;

  // Never waits, also while another thread's call does. Bytes, transfers and stalls are those of
  // now; the plan and what follows from it are as the last call to end has left them.
  virtual absl::StatusOr<Statistics> GetStatistics() = 0;

  // The plan that training follows; none before the first one, and where none could be made. Waits
  // for another thread's call.
  virtual std::optional<PlanInForce> GetPlan() const = 0;

  // Never waits. OK, or the error that the engine has failed with, which all later calls return. So
  // after a call's error: OK means that the call was refused and the engine goes on; anything else,
  // that the engine can only be ended. An error of the engine's own threads is known here before a
  // call returns it. While a call hangs this is OK until that has waited for Options::timeout.
  virtual absl::Status health() const = 0;

 protected:
  Engine() = default;
  static Operation MakeOperation(std::unique_ptr<Operation::State> state);
};

}  // namespace geminid::zero

#endif  // GEMINID_ZERO_H_
