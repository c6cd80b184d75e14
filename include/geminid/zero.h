// ZeRO on chunks: trains models whose state is sharded over the ranks and does not fit the
// device.
//
// The parameters are packed into chunks, in the given order. Each rank has its shard of every
// chunk: the weight, the remaining bits of its fp32 master, and the optimizer's state. With
// Adam's moments these take 12 bytes per parameter (Options::state_type), plus the reduced
// gradient.
//
// A micro-batch is one forward and backward pass; a step of the optimizer has one or more. An
// operator is the work between a Use and its Finish, such as a layer's forward. Each Use begins a
// moment of the micro-batch. An operator's chunks are gathered on the device. The first micro-batch
// is a sample. After that a plan says, by moments, what to gather ahead and what stays; it is
// replaced when steps no longer fit it. Placement never changes results: they are bit-identical.
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
// A step's gradient is the mean of the ranks' gradients, and the mean or sum over its
// micro-batches. A trained parameter without a gradient from any operator has a gradient of zeros.
//
// Operators may overlap: Use may be called while earlier Operations are open, on the same
// parameters too. Evaluation may come at any time, within a micro-batch too, but not on weights
// that their gradients have overwritten.
//
// Threads: any thread may call; calls run one after the other. Only health and GetStatistics do not
// wait for the call before: they answer even while it hangs. A function that the engine calls, such
// as a Fill, Options::clock or Admission::on_wait, may call these two functions only.
//
// Blocking: Use waits until the parameters are on the device, Step until every gradient of the step
// is reduced. If nothing happens for Options::timeout, they return DEADLINE_EXCEEDED and say what
// they waited for. All ranks must make the same calls in the same order. If ranks use different
// parameters, or give a call different arguments, they get INVALID_ARGUMENT before any weight
// changes, which says which rank did what. A rank that makes another call, or none, is waited for
// like a slow one: DEADLINE_EXCEEDED.
//
// Errors: a call that is refused for its arguments or its time (INVALID_ARGUMENT,
// FAILED_PRECONDITION) changes nothing, and the engine stays usable. After any other error it has
// failed: every later call returns the same status, on all ranks. Engine::health distinguishes them
// for any code: OK after an error means that the call was refused.
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

class EngineImpl;  // internal

enum class Pass { kForward, kBackward, kEvaluate };

enum class Placement {
  kDevice,  // all data is on the device, always
  kCpu,     // weights leave the device after each operator
  kAuto,    // the plan decides
};

// Where the optimizer's state is, and where it is updated, with placement kAuto. Whole chunks move
// to the device; chunks whose gradients come last are first.
enum class StatePlacement {
  kAuto,    // as many on the device as give the shortest step, or else move the fewest bytes
  kHost,    // none on the device
  kDevice,  // all on the device, from the start: none in host memory
  kShare,   // on the device as far as Options::state_share of the margin allows
  // As kShare. In addition the device updates the state of the other chunks, which is in host
  // memory: it is copied to the device slice by slice, and back. That needs three places, which
  // take one sixteenth of the arena, or 48 KiB (AdamW, bf16) if that is more. With AdamW and bf16
  // 14 bytes per parameter go to the device and 12 come back, instead of 28 bytes that the
  // processor reads and writes. Also with placement kCpu.
  kStreamed,
  // Weights are in host memory, and all other state of trained parameters is on disk: 10 of 12
  // bytes per parameter with AdamW and bf16. The processor updates it. Optimizers that NeedsSums
  // read it twice a step. kAuto with folders does so for the last chunks only, as few as possible.
  // The others fit this rank's share of the host memory that its job may have here.
  kDisk,
};

// Folders for StatePlacement::kDisk, and for state that kAuto cannot fit into host memory.
struct StateDisk {
  // One folder on each disk; bytes are spread evenly over them. This rank has a file in each, whose
  // space is reserved when the engine is created. Ranks may name the same folders. If a replacement
  // process may take over the session, the files have names and are retained for it. Otherwise they
  // have no names, and are gone when this process ends, in whatever way.
  std::vector<std::string> folders{};
  uint64_t limit_bytes = 0;  // of this rank's files; 0: limited by the disks only
  // Bytes that this rank may write to them, in all processes of its run; 0: no limit. A step that
  // would exceed it returns RESOURCE_EXHAUSTED on all ranks, and changes nothing.
  uint64_t endurance_bytes = 0;
};

// When parameters are updated, and therefore how much of the gradient must be stored.
enum class UpdateTime {
  kAfterStep,  // a step is all or nothing: its gradient is stored until Step
  // Chunk by chunk, when the chunk's gradient is reduced. Saves 2 bytes of host memory per bf16
  // parameter. Results are bit-identical to kAfterStep. Only if no update needs the whole gradient
  // first: no clipping, no loss scaling, one micro-batch per step, no optimizer that NeedsSums, and
  // no parameter with Parameter::update_without_gradient false. Its cost: after the first update a
  // step can only be completed. CancelMicroBatch, operators on updated parameters, ReadGradient and
  // WriteGradient are refused. A gradient that is not finite is DATA_LOSS, not
  // StepResult::overflow. A run that ends within a step can only use its last checkpoint.
  kInBackward,
};

// ZeRO's stages: which data of the model is sharded over the ranks, and therefore how often ranks
// exchange data. The optimizer's state is sharded in each stage. It is all that is committed, saved
// and resumed, so a run may continue in another stage.
enum class Stage {
  // As kGradients, but with several micro-batches per step each rank adds up its whole gradients in
  // fp32 on the device: 4 bytes per element of the arena. The last micro-batch rounds the mean to
  // the gradient's type and adds it over the ranks. So its bits differ from those of the other
  // stages, which round each micro-batch. A step must then have exactly Options::accumulate
  // micro-batches.
  kState = 1,
  // Weights are gathered once after each update, and once more after an evaluation between steps.
  // Gradients have memory of their own, and are added over the ranks in each micro-batch:
  // bit-identical to kWeights. The weights and the gradients of a moment should together fit the
  // device. Otherwise whole chunks are moved to host memory and back, and nothing is fetched ahead.
  kGradients = 2,
  // Weights are gathered for the operators that use them. If they do not fit the device, they are
  // gathered again in each micro-batch and in its backward pass.
  kWeights = 3,
};

// How a step's gradient is formed from those of its micro-batches.
enum class GradientScale { kMean, kSum };

// What Step does if the gradient has an element that is not finite.
enum class NotFinite {
  kSkip,  // leaves the weights as they are, and sets StepResult::overflow
  // Updates with it, like PyTorch; not with an optimizer that NeedsSums. Clipping by a norm that is
  // NaN makes all weights NaN.
  kWrite,
  // FAILED_PRECONDITION names a parameter, and nothing has changed. Then call CancelMicroBatch to
  // discard the step, or correct its gradients with WriteGradient and call Step again.
  kFail,
};

struct Parameter {
  std::string name{};  // printable UTF-8 and not "__metadata__", where checkpoints are saved
  std::vector<int64_t> shape{};
  // The type of weight and gradient, instead of Options::data_type: fp32 norms and routers beside
  // bf16, or an 8-bit frozen base. A trained parameter has an fp32 master with either of its types.
  std::optional<DataType> data_type = std::nullopt;
  // The same number for parameters that are used together, such as those of a block. They share
  // chunks only with each other, so no other parameters are gathered and held with them. A unit
  // with very few elements of a data type still shares their chunk with others.
  std::optional<uint32_t> unit = std::nullopt;
  bool trainable = true;
  bool decay = true;                                  // subject to weight decay
  std::optional<double> weight_decay = std::nullopt;  // instead of the optimizer's
  double learning_rate_scale = 1;
  // After so many gradients in one micro-batch the parameter's gradient is complete. 0: any number;
  // it is complete when the micro-batch ends.
  int backward_uses = 1;
  // False: the gradient overwrites the weight. No later operator of the micro-batch may then read
  // the weight; operators that add to the gradient may still begin. True, or with backward_uses 0,
  // or in stages below Stage::kWeights: the gradient has its own memory, as have those of all
  // parameters in the chunk.
  bool separate_gradient = false;
  // True: a step without a gradient on any rank changes it like a gradient of zeros. False: such a
  // step leaves it and its state unchanged, and does not count among its updates (`t` in
  // geminid/optimizer.h).
  bool update_without_gradient = true;
  size_t group = 0;  // index in StepInput::groups
  // With MuonOptions: the update is made orthogonal. The last two dimensions are a matrix; earlier
  // ones count matrices, such as a layer's experts. A whole matrix is on one rank, so a chunk has
  // room for the largest one on each rank. False: AdamW, for embeddings, output layers, norms and
  // biases. Other optimizers ignore it.
  bool orthogonal = false;
  // With Options::model: its pieces of the model's tensors; elements in no piece are never updated.
  // Unset: it is the whole tensor of its name.
  std::optional<std::vector<TensorPiece>> pieces = std::nullopt;
  // Whether its elements count in sums over whole tensors. If ranks of several engines have the
  // same elements, exactly one of them must set this.
  bool counts = true;
};

inline constexpr int kMaxUpdateThreads = 1024;

struct Options {
  DataType data_type = DataType::kBFloat16;  // of parameters that name none
  Stage stage = Stage::kWeights;             // the same on all ranks
  Placement placement = Placement::kAuto;    // kCpu: only in Stage::kWeights
  double clip_norm = 1.0;                    // 0: gradients are not clipped
  // The usual number of micro-batches per step; except in Stage::kState, Step may come earlier or
  // later. 1: always one, and gradients are not summed in fp32.
  int accumulate = 1;
  // Above 1: the parameters have so many parts, and a micro-batch gives gradients to one part, the
  // same on all ranks. For pipelines whose stages run backward through several parts one by one.
  // Other chunks keep their sums, and a micro-batch counts as 1 / micro_batch_parts. Only with
  // `accumulate` above 1.
  int micro_batch_parts = 1;
  GradientScale gradient_scale = GradientScale::kMean;
  UpdateTime update = UpdateTime::kAfterStep;
  Optimizer optimizer{};  // AdamW by default
  // The type of the optimizer's arrays between steps: kFloat32, or kBFloat16 with half the bytes. A
  // step rounds to it stochastically, with an exact mean, by a hash of the parameter's name, the
  // element and the update; results depend on nothing else. Refused if CheckStateType refuses it.
  DataType state_type = DataType::kFloat32;
  // Gradients arrive multiplied by loss_scale(), and the update divides them by it. Only with
  // NotFinite::kSkip.
  std::optional<LossScalerOptions> loss_scale{};
  NotFinite not_finite = NotFinite::kSkip;  // with UpdateTime::kInBackward always DATA_LOSS
  StatePlacement state_placement = StatePlacement::kAuto;
  // kShare, kStreamed: 0 to 1, of the arena's free part at the peak of the sample.
  double state_share = 0;
  StateDisk state_disk{};       // with kDisk or kAuto; folders on all ranks or on none
  uint64_t chunk_elements = 0;  // 0: searches for the size with the least padding
  // Each weight and each gradient is at the same address whenever it is on the device. At other
  // times a touch of that address is a fault, until the engine fails. This needs as many addresses
  // as they have bytes, and a few system calls when a chunk comes or goes. UNIMPLEMENTED on a GPU.
  bool stable_addresses = false;
  int max_lookahead_moments = 8;
  int update_threads = 1;  // threads of the update; results do not depend on it
  // Needs a session with a run: INVALID_ARGUMENT. Create resumes from the earlier processes of
  // these ranks, if each of them left its state (ConnectOptions::keep_on_death) and had committed a
  // step. It finishes the last step that any of them had committed. resumed() then has that step,
  // the state is that of an undisturbed run after it, and Initialize is refused. Otherwise Create
  // frees what was left, and the run begins anew. State that was committed with other parameters or
  // options stays (FAILED_PRECONDITION); Create without resume frees it. The same on all ranks;
  // with it, so must be data_position and random_state.
  bool resume = false;
  // If this engine trains a part of a model: the ranks of all parts. They resume together, after
  // the last step that any of them had committed, or begin anew together. No rank may commit a
  // step before all of them know its GradientNorm (StepInput::gradient_norm). Not with groups,
  // nor in sessions with Admission::preemptible. Changes by WriteGradient must be complete on all
  // ranks before any rank commits. Only Create uses this communicator, and is then a collective
  // of all these ranks. With `model` Step is one, too. Null: its own ranks.
  collectives::Communicator* all_ranks = nullptr;
  // In Stage::kWeights on several hosts: the ranks of `communicator` on this rank's host, including
  // this one; as many on each host. Weights are gathered over all ranks once after each update.
  // After that each rank of a host has an equal shard of them in host memory
  // (Statistics::host_shard_bytes). The backward pass, further micro-batches and evaluations gather
  // them from these ranks alone. Results stay bit-identical. A rank alone on its host stores all
  // weights, and receives none again. Only Create uses this, by all ranks or by none. Null: every
  // gather is over all ranks.
  collectives::Communicator* host_ranks = nullptr;
  // With all_ranks and an optimizer that NeedsSums: the whole model's tensors, the same on all of
  // them. A tensor's options here count, not those of the parameters that have pieces of it
  // (Parameter::pieces). Norms, rows and columns are those of these tensors, summed over all ranks
  // in a fixed order. Every rank has every tensor's state, so Progress equals that of one engine
  // with the whole model. Each trained element must count on exactly one rank: INVALID_ARGUMENT if
  // a tensor's count differs from its elements.
  std::vector<Parameter> model{};
  // The clock for durations of steps and stalls; empty: a monotonic one. Called on threads of the
  // trainer and of its streams, one call at a time.
  std::function<absl::Time()> clock{};
  // A call fails if nothing that it waits for makes progress for so long. Planning must take
  // less.
  absl::Duration timeout = absl::Minutes(5);
};

// The parameters of one operator, which stay on the device while this lives. Move-only; assignment
// finishes the old one. Pointers are to whole row-major tensors of the parameter's data type,
// aligned to 64 bytes, and valid until Finish. After Finish, a move, or the engine's end, pointers
// are null and calls fail.
class GEMINID_EXPORT Operation {
 public:
  Operation(Operation&&) noexcept;
  Operation& operator=(Operation&&) noexcept;
  ~Operation();  // finishes; an error is returned by the engine's next call

  // Null if the operator does not have the parameter, or its gradient has overwritten it.
  const std::byte* Weight(ParameterId id) const;

  // Where to write the gradient: over the weight, so read the weight first; or in memory of its own
  // (with Parameter::separate_gradient, and in Stages below kWeights). Kernels must add to the
  // contents if GradientAccumulates returns true, else overwrite them. Null except for trained
  // parameters in kBackward.
  std::byte* Gradient(ParameterId id);
  bool GradientAccumulates(ParameterId id) const;

  // Copies the weight to the caller's memory, on the device or the host. Queued on the stream that
  // Use was given; without one it is complete on return. INVALID_ARGUMENT if Weight is null.
  absl::Status CopyWeight(ParameterId id, std::byte* to) const;

  // The gradient of one use is complete. Call once per parameter that got one here.
  absl::Status GradientWritten(ParameterId id);

  // Gives the parameters back. Work that uses them must be complete, or be queued on the stream
  // that Use was given.
  absl::Status Finish();
  // The same, with the work queued on this stream. Does not wait for it.
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

// After fork() the child cannot use the engine: calls return FAILED_PRECONDITION, operations have
// no weights and gradients, and its end changes nothing for the parent.
class GEMINID_EXPORT Engine : public ModelState {
 public:
  // Packs the parameters, allocates their state through the session, and zeroes it. `session` must
  // have an arena and, like `communicator`, outlive the engine. The engine has the whole arena
  // while it lives: other chunks are evicted from it, and must be clean and not leased. Errors:
  // RESOURCE_EXHAUSTED with the numbers and the smallest sufficient arena. INVALID_ARGUMENT for
  // invalid parameters or options, or ones that differ between ranks, with each rank's values.
  // ABORTED names another rank that had such an error. After these errors the communicators are
  // usable: all ranks may call Create again. Other errors abort them.
  // After any error while it resumes (Options::resume) the session's end leaves the session and its
  // state to the next process: see Session::LeaveToSuccessor.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(Session* session,
                                                        collectives::Communicator* communicator,
                                                        std::vector<Parameter> parameters,
                                                        Options options);
  // Returns its memory to the session, which may then have another engine. Waits for copies in
  // progress, at most 10 s. Memory of a failed engine in a session with keep_on_death stays for the
  // next process: Create refuses another engine in that session.
  ~Engine() override = default;

  // As Initialize, but calls `fill` only for elements of this rank's shard: `values` are those from
  // `first` on. Needs no more memory than one call's values.
  using FillRange =
      std::function<absl::Status(ParameterId id, uint64_t first, std::span<float> values)>;
  virtual absl::Status InitializeShards(const FillRange& fill) = 0;

  // The hyperparameters of one group of parameters.
  struct GroupInput {
    double learning_rate = 0;
    std::optional<double> weight_decay = std::nullopt;  // instead of the parameters' own
    // Instead of the optimizer's, which must have them, and may not need other arrays of state:
    // INVALID_ARGUMENT otherwise. For SGD and LARS beta1 is the momentum.
    std::optional<double> beta1 = std::nullopt;
    std::optional<double> beta2 = std::nullopt;
    std::optional<double> epsilon = std::nullopt;

    bool operator==(const GroupInput&) const = default;
  };
  // The input of a step. All ranks pass the same, except for the last two fields. Step and
  // BeginStep compare it: INVALID_ARGUMENT names each difference and each rank's value, and nothing
  // has changed.
  struct StepInput {
    double learning_rate = 0;
    // By Parameter::group, instead of learning_rate; empty: learning_rate for all.
    std::vector<GroupInput> groups{};
    std::optional<double> clip_norm = std::nullopt;  // instead of Options::clip_norm
    // If this engine trains a part of a model: the norm of the whole model's gradient. It decides
    // about clipping and overflow instead of the engine's own. The same on all ranks.
    std::optional<double> gradient_norm = std::nullopt;
    // A factor that the step's gradients contain, besides loss_scale(). Norm, clipping and
    // update use the gradients divided by it. GradientNorm, ReadGradient and WriteGradient,
    // which come before, use them undivided. Above 0; must be 1 with
    // UpdateTime::kInBackward.
    double gradient_scale = 1;
    uint64_t data_position = 0;
    std::array<uint64_t, 4> random_state = {};
  };

  // With UpdateTime::kInBackward: the input of the step's updates, before its micro-batch; Step
  // must get the same rates. Otherwise without effect. Between steps.
  virtual absl::Status BeginStep(const StepInput& input) = 0;

  // Ends the micro-batch before, if there is one. No Operation may be open.
  virtual absl::Status BeginMicroBatch() = 0;
  // Discards the step's micro-batches so far, for example after an exception: their gradients are
  // lost, and the step begins again with the next one. No Operation may be open. All ranks must
  // call it. FAILED_PRECONDITION once an update has begun (UpdateTime::kInBackward).
  virtual absl::Status CancelMicroBatch() = 0;

  // The next operator. Waits until its parameters are on the device. RESOURCE_EXHAUSTED if they do
  // not fit beside held parameters and the workspace in use; nothing has changed then. All ranks
  // alike may then split the operator, finish or free more, or cancel the micro-batch.
  virtual absl::StatusOr<Operation> Use(Pass pass, std::span<const ParameterId> parameters) = 0;

  // The same, on a stream: later work on the stream waits for the parameters, and this call returns
  // their addresses at once. It blocks only if it must make room that earlier work still uses.
  // Operators are timed by when the stream reaches them.
  //
  // Memory is reused in the order of streams. A chunk's is reused when the stream of its Finish has
  // reached that point, a block's when all streams have reached the point where it was freed. But
  // blocks are handed out in the order of calls, so a trainer with several streams, or with calls
  // without one, must order its work by that. Streams must live until Synchronize. Later errors are
  // returned by the next call: streams then do not hang, but their results are invalid.
  virtual absl::StatusOr<Operation> Use(Pass pass, std::span<const ParameterId> parameters,
                                        StreamHandle stream) = 0;

  // Adds to the gradient of a parameter whose gradient has its own memory, like a GradientWritten:
  // the whole tensor, copied before this returns. In a micro-batch, within an Operation or not. In
  // bf16 each sum is rounded, as in kernels.
  virtual absl::Status AddGradient(ParameterId id, std::span<const std::byte> gradient,
                                   DataType type) = 0;
  // The same, on a stream. The gradient may not be changed or freed before the stream has passed
  // this point. It may be on the device.
  virtual absl::Status AddGradient(ParameterId id, std::span<const std::byte> gradient,
                                   DataType type, StreamHandle stream) = 0;

  // Waits for all work that was queued on the streams given to this engine; the streams may end
  // after this. DEADLINE_EXCEEDED if nothing progresses for Options::timeout; else the engine's
  // status. Step, GradientNorm and CancelMicroBatch begin with it.
  virtual absl::Status Synchronize() = 0;

  // The address that Operation::Weight returns for it. Null without Options::stable_addresses.
  virtual const std::byte* StableAddress(ParameterId id) const = 0;

  // The device memory of the chunks of these weights and these gradients together.
  virtual uint64_t DeviceBytes(std::span<const ParameterId> weights,
                               std::span<const ParameterId> gradients) const = 0;

  virtual Workspace& workspace() = 0;

  // For activations that the arena has no room for between forward and backward pass. All ranks
  // call this before the first micro-batch, at most once. The engine owns the stack and its places,
  // which are at the bottom of the arena. RESOURCE_EXHAUSTED, with the numbers, if a rank lacks
  // memory; then nothing has changed on any rank.
  virtual absl::StatusOr<ActivationStack*> MakeActivationStack(const ActivationShape& shape) = 0;

  // For trainers with an allocator of their own: the bytes of non-model device memory used since
  // the last call of Use. Must be called before they are used.
  virtual absl::Status ReportWorkspace(uint64_t bytes) = 0;

  // Ends the step: waits for the gradients, agrees with the other ranks on norm and overflow,
  // commits, and starts the update. The next forward pass waits for the update chunk by chunk. The
  // commit record has `data_position` and `random_state`.
  // A trained parameter that got no gradient has one of zeros. RESOURCE_EXHAUSTED if they have no
  // room beside the workspace in use: nothing has changed, and other ranks wait until this one has
  // freed some and calls again. GradientNorm and BeginMicroBatch, too.
  virtual absl::StatusOr<StepResult> Step(const StepInput& input) = 0;

  // The norm that Step would return now, before clipping. Ends the step's last micro-batch and
  // waits for its gradients. Between this call and Step only evaluation, ReadGradient and
  // WriteGradient are allowed.
  virtual absl::StatusOr<double> GradientNorm() = 0;

  // The factor by which the trainer must multiply its loss's gradient until the next Step; 1
  // without loss scaling. The same on all ranks.
  virtual double loss_scale() const = 0;

  // This rank's shards of the step's gradients, between GradientNorm and Step: reduced, unscaled,
  // before clipping. They have the precision in which they are stored: the parameter's data type
  // with one micro-batch per step and in Stage::kState, else fp32. After WriteGradient, Step
  // measures the norm again; GradientNorm returns it too. For trained parameters only.
  virtual absl::Status ReadGradient(ParameterId id, uint64_t offset, std::span<float> values) = 0;
  virtual absl::Status WriteGradient(ParameterId id, uint64_t offset,
                                     std::span<const float> values) = 0;

  // Never waits, even for another thread's call. Bytes, transfers and stalls are current; the plan,
  // and numbers that depend on it, are those after the last call that ended.
  virtual absl::StatusOr<Statistics> GetStatistics() = 0;

  // The plan that training follows; nullopt before the first one, or if none could be made. Waits
  // for another thread's call.
  virtual std::optional<PlanInForce> GetPlan() const = 0;

  // Never waits. OK, or the error with which the engine has failed, which all later calls return.
  // After a call's error OK means that the call was refused and the engine stays usable; otherwise
  // the engine can only be destroyed. Errors of the engine's own threads appear here before a call
  // returns them. While a call hangs, this is OK until the call has waited for Options::timeout.
  virtual absl::Status health() const = 0;

 protected:
  Engine() = default;
  static Operation MakeOperation(std::unique_ptr<Operation::State> state);
};

}  // namespace geminid::zero

#endif  // GEMINID_ZERO_H_
