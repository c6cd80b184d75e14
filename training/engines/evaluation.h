// Measures the loss of a model on data. There is no optimizer, no gradient and no checkpoint.
#ifndef GEMINID_TRAINING_ENGINES_EVALUATION_H_
#define GEMINID_TRAINING_ENGINES_EVALUATION_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "geminid/mesh.h"
#include "geminid/session.h"
#include "training/engines/trained_model.h"
#include "training/ranks/rank_session.h"
#include "training/settings/options.h"

namespace geminid::trainer {

struct Evaluation {
  int signal = 0;       // the signal that ended it before there was a loss; 0: none
  double loss = 0;      // the mean over the tokens, or the images
  std::optional<double> accuracy = std::nullopt;  // of a classifier: the share that is right
  uint64_t tokens = 0;  // of all ranks
  double seconds = 0;   // of the measurement alone
  uint64_t threads = 1;
};

// The objects of a rank at the end, for writing a report together with the other ranks.
struct EvaluatedRun {
  const TrainOptions& options;
  const Evaluation& evaluation;
  const collectives::Mesh& mesh;
  collectives::Communicator& communicator;
  const TrainedModel& model;
  const Session& session;
};

// Evaluates on one rank: loads options.load and measures options.validation_batches micro-batches.
// They are spread evenly over the data that options.validation_share holds out, or over all data if
// that is 0. A training run with these values measures the same loss. `on_end` is called on all
// ranks, also after a signal. Blocks; the other ranks must run at the same time. If it fails, the
// other ranks fail too, with ABORTED.
absl::StatusOr<Evaluation> EvaluateOnRank(
    const TrainOptions& options, const RankContext& context,
    const std::function<absl::Status(const EvaluatedRun& run)>& on_end);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_EVALUATION_H_
