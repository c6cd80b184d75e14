// A step of the optimizer: the norm of the gradients, with which the ranks agree on the step, the
// commit record, and the update. Also has the position of the run.
#ifndef GEMINID_CLIENT_ZERO_STEP_GRADIENT_STEP_H_
#define GEMINID_CLIENT_ZERO_STEP_GRADIENT_STEP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/zero/core/gradient_book.h"
#include "client/zero/options/agreed_fields.h"
#include "client/zero/options/engine_setup.h"
#include "client/zero/ranks/rank_links.h"
#include "client/zero/residency/mover.h"
#include "client/zero/state/state_store.h"
#include "client/zero/step/step_gradients.h"
#include "client/zero/update/granule_optimizer.h"
#include "client/zero/update/updater.h"
#include "client/zero/values/resumption.h"
#include "geminid/loss_scaler.h"
#include "geminid/zero.h"

namespace geminid::zero {

// Not thread-safe.
class GradientStep {
 public:
  using Input = Engine::StepInput;
  // All outlive this object.
  struct Parts {
    RankLinks* links = nullptr;
    GranuleOptimizer* optimizer = nullptr;
    StateStore* store = nullptr;
    Updater* updater = nullptr;
    Mover* mover = nullptr;  // has the reduced gradients
    GradientBook* book = nullptr;
  };
  GradientStep(const EngineSetup& setup, const Parts& parts, const RunPosition& position);

  const RunPosition& position() const { return position_; }
  double loss_scale() const { return loss_scaler_.scale(); }
  int micro_batches() const { return micro_batches_; }  // complete ones of this step
  void CountMicroBatch() { ++micro_batches_; }
  bool has_norm() const { return norm_.has_value(); }
  // The factor for reduced gradients, which with accumulation are sums over micro-batches.
  double Scale() const { return Factor() / loss_scaler_.scale(); }
  void NoteGradientsWritten() { gradients_written_ = true; }
  // Of the newest step that has a norm.
  const StepGradients& newest_gradients() const { return gradients_; }
  // After the last Norm or CheckBegin: a rank's disk has no endurance left for the step.
  bool disk_spent() const { return asked_.disk_spent; }
  // Whether a rank was asked to give its arena to another job. Returns true once per request.
  bool TakeYieldAsked() { return std::exchange(asked_.yield, false); }

  // --- steps that update parameters in the backward pass ---

  bool has_begun() const { return begun_.has_value(); }
  // A collective. INVALID_ARGUMENT: the step is invalid, or differs between ranks.
  absl::Status CheckBegin(const Input& input);
  absl::Status Begin(const Input& input);
  // INVALID_ARGUMENT unless the step equals the one that Begin got.
  absl::Status CheckBegun(const Input& input) const;

  // --- the step's end, in this order ---

  // The norm of all ranks' gradients, once all are reduced. The commit barrier: a rank that passes
  // it knows that every rank has stored all its reduced gradients. INVALID_ARGUMENT if ranks pass
  // different steps; then Norm may be called again.
  absl::StatusOr<double> Norm(const AgreedFields& step);
  // Names the parameters with the first gradient that is not finite. A collective.
  absl::StatusOr<std::string> WhereNotFinite();
  // Decides whether and how the step updates the weights. The step counts from now on.
  StepResult Decide(double norm, double clip_norm, double gradient_scale = 1);
  // Collective work that the update of this rank's granules needs.
  absl::Status Prepare(const Input& input, const StepResult& result);
  // Writes the commit record, and begins the update of the chunks in `order`.
  void Commit(const Input& input, const StepResult& result, const std::vector<uint32_t>& order);
  // The step is over, or was discarded.
  void End();

  // --- runs ---

  absl::StatusOr<Progress> GetProgress() const;
  // The tensor state of a run that this engine can continue; else INVALID_ARGUMENT.
  absl::StatusOr<std::vector<std::byte>> CheckProgress(const Progress& progress) const;
  absl::Status Restore(const Progress& progress, const std::vector<std::byte>& tensor_state);

 private:
  double Factor() const;
  // Whether this rank may not write another step to disk.
  absl::StatusOr<bool> IsDiskSpent();
  StepGradients GradientsOf(double own_squares, double reduced_squares) const;
  absl::Status LeaveOutUnwritten(std::vector<TensorRates>* rates);
  absl::Status PrepareUpdate(const Input& input, const StepResult& result, uint64_t update);

  const EngineSetup& setup_;
  RankLinks* const links_;
  GranuleOptimizer* const optimizer_;
  StateStore* const store_;
  Updater* const updater_;
  Mover* const mover_;
  GradientBook* const book_;
  LossScaler loss_scaler_;
  RunPosition position_;
  int micro_batches_ = 0;
  std::optional<double> norm_;      // of this step, once it is known
  StepGradients gradients_;         // as measured
  bool gradients_written_ = false;  // by the trainer, after the last norm
  // What any rank was asked, in the step that ends.
  struct StepRequests {
    bool yield = false;
    bool disk_spent = false;
  } asked_;
  std::optional<Input> begun_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STEP_GRADIENT_STEP_H_
