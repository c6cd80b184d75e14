// Which parameters of a micro-batch have been given gradients, and whose gradients are complete.
// Pure.
#ifndef GEMINID_CLIENT_ZERO_CORE_GRADIENT_BOOK_H_
#define GEMINID_CLIENT_ZERO_CORE_GRADIENT_BOOK_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace geminid::zero {

class GradientBook {
 public:
  struct Tensor {
    std::string name{};
    uint32_t chunk = 0;
    bool trainable = true;
    int uses = 1;  // after which its gradient is complete; 0: when the micro-batch ends
    bool separate = false;
  };

  GradientBook(std::vector<Tensor> tensors, uint32_t chunks);

  // Where gradients of the chunk are: in its own place, or in a separate one, which has a number
  // behind those of all chunks.
  uint32_t StorageOf(uint32_t chunk) const { return chunks_[chunk].storage; }
  bool IsSeparate(uint32_t chunk) const { return chunks_[chunk].storage != chunk; }
  // The chunk that each number belongs to: of chunks, then of separate gradients.
  const std::vector<uint32_t>& owners() const { return owners_; }

  void BeginMicroBatch();
  // A step is over, or its micro-batches are given up.
  void BeginStep();

  // False once its gradient has been written over it, until that has left.
  bool WeightIsThere(uint32_t tensor) const;
  // FAILED_PRECONDITION, naming the parameter and what to do, if it is not.
  absl::Status CheckWeight(uint32_t tensor) const;
  // The same: it takes no gradient, or none any more.
  absl::Status CheckGradient(uint32_t tensor) const;
  void Write(uint32_t tensor);
  int written(uint32_t tensor) const { return written_[tensor]; }
  // In any micro-batch of this step.
  bool written_in_step(uint32_t tensor) const { return written_in_step_[tensor]; }

  // All gradients of the chunk are, and it has some.
  bool Complete(uint32_t chunk) const;
  void Reduce(uint32_t chunk);
  bool IsReduced(uint32_t chunk) const { return chunks_[chunk].reduced; }
  // How often in this step.
  int reductions(uint32_t chunk) const { return chunks_[chunk].reductions; }
  // One of its parameters was given a gradient in this micro-batch.
  bool HasGradient(uint32_t chunk) const;
  // Every chunk with a trained parameter was reduced so often in this step.
  bool AllReduced(int times) const;
  // Of how many chunks the gradient is on its way to the update.
  uint32_t reduced() const;

 private:
  struct Chunk {
    std::vector<uint32_t> trained;  // tensors
    uint32_t storage = 0;
    bool reduced = false;  // in this micro-batch
    int reductions = 0;    // in this step
  };

  const std::vector<Tensor> tensors_;
  std::vector<Chunk> chunks_;
  std::vector<uint32_t> owners_;
  std::vector<int> written_;  // in this micro-batch
  std::vector<bool> written_in_step_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_GRADIENT_BOOK_H_
