// Says which samples each rank trains on in each step. A sample depends on the seed and its number
// alone, so any number of ranks with the same global batch sees the same samples in the same steps.
#ifndef GEMINID_TRAINING_DATA_BATCHES_H_
#define GEMINID_TRAINING_DATA_BATCHES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "training/data/sampling.h"
#include "training/data/token_source.h"
#include "training/models/masking.h"
#include "training/models/model_config.h"
#include "training/nn/micro_batch.h"

namespace geminid::trainer {

struct BatchPlan {
  uint64_t seed = 0;
  Sampling sampling = Sampling::kReplacement;
  uint64_t context = 0;     // tokens per sequence
  uint64_t batch = 0;       // sequences per micro-batch, over all ranks
  uint64_t accumulate = 1;  // micro-batches per step
  uint64_t rank = 0;
  uint64_t world_size = 1;  // the ranks that divide a micro-batch's sequences
  uint64_t piece = 0;       // this rank's slice of each sequence, of `pieces` equal ones
  uint64_t pieces = 1;
  // Set: the targets are masked tokens, and random tokens are below `vocabulary`. Unset: the target
  // is the next token.
  std::optional<Masking> masking = std::nullopt;
  std::optional<ImageShape> image = std::nullopt;  // of images, whose tokens are the context
  uint64_t vocabulary = 0;
  bool zigzag = false;  // a slice is two chunks, one from the front and one from the back
};

// The positions of the slice's tokens in the sequence.
Positions PositionsOf(const BatchPlan& plan);

class Batches {
 public:
  // INVALID_ARGUMENT if the data is too short or the batch does not divide.
  static absl::StatusOr<Batches> Create(const TokenRange& data, const BatchPlan& plan);

  // This rank's part of a micro-batch: consecutive samples. Valid until the next call of a Get
  // function. Errors are those of the data.
  absl::StatusOr<MicroBatch> Get(uint64_t step, uint64_t micro_batch);
  // The same for the micro-batch whose first sample has this number.
  absl::StatusOr<MicroBatch> GetFrom(uint64_t first_sample);

  // This rank's part of micro-batch `index` of `count`, whose sequences are spread evenly over the
  // data. They are the same in every run, so that measurements of different steps can be compared.
  absl::StatusOr<MicroBatch> GetEven(uint64_t index, uint64_t count);

  // The number of the first sample of a step. It equals the number of samples trained on before.
  uint64_t FirstSample(uint64_t step) const { return step * plan_.accumulate * plan_.batch; }

  // 0: this kind of sampling has no epochs.
  uint64_t samples_per_epoch() const {
    const bool has_epochs = plan_.sampling != Sampling::kReplacement;
    return has_epochs ? SamplesIn(data_, plan_.context) : 0;
  }

  uint64_t tokens_per_micro_batch() const { return sequences() * length(); }  // of this rank
  uint64_t tokens_per_step() const {                                          // of all ranks
    return plan_.accumulate * plan_.batch * plan_.context;
  }
  bool has_labels() const { return plan_.image.has_value(); }  // of images, one of each
  uint64_t tokens_per_sequence() const { return plan_.context; }
  // The number of targets of each sequence. A masked sequence with too many special tokens has
  // fewer, but means of losses are divided by this number all the same.
  uint64_t targets_per_sequence() const {
    if (plan_.image) return 1;
    return plan_.masking ? MaskedTokens(plan_.context) : plan_.context;
  }
  // An equal share of a micro-batch's targets for each rank that has a slice of the same sequences.
  double targets_per_micro_batch() const {
    return static_cast<double>(sequences() * targets_per_sequence()) /
           static_cast<double>(plan_.pieces);
  }

 private:
  Batches(const TokenRange& data, const BatchPlan& plan) : data_(data), plan_(plan) {}
  uint64_t sequences() const { return plan_.batch / plan_.world_size; }
  uint64_t length() const { return plan_.context / plan_.pieces; }
  // Of sequences, from the first of which on one may begin.
  uint64_t starts() const { return plan_.image ? data_.tokens : data_.tokens - plan_.context; }
  template <typename StartOf, typename StreamOf>
  absl::StatusOr<MicroBatch> Gather(uint64_t first_sample, const StartOf& start_of,
                                    const StreamOf& stream_of);
  absl::Status AppendPiece(uint64_t start);
  absl::Status AppendMaskedPiece(uint64_t start, uint64_t stream);
  absl::Status AppendImage(uint64_t number);

  TokenRange data_;
  BatchPlan plan_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> targets_;
  std::vector<float> patches_;
};

// INVALID_ARGUMENT unless `world_size` divides `batch`.
absl::Status CheckBatch(uint64_t batch, uint64_t world_size);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_DATA_BATCHES_H_
