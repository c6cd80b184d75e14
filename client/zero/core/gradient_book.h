// Records which parameters of a micro-batch have received gradients, and which gradients are
// complete. Pure.
#ifndef GEMINID_CLIENT_ZERO_CORE_GRADIENT_BOOK_H_
#define GEMINID_CLIENT_ZERO_CORE_GRADIENT_BOOK_H_

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
    int uses = 1;  // after so many the gradient is complete; 0: at the micro-batch's end
    bool separate = false;
  };

  GradientBook(std::vector<Tensor> tensors, uint32_t chunks);

  // The chunk that stores the gradients of `chunk`: itself, or a separate one, whose number is
  // above those of all chunks.
  uint32_t StorageOf(uint32_t chunk) const { return chunks_[chunk].storage; }
  bool IsSeparate(uint32_t chunk) const { return chunks_[chunk].storage != chunk; }
  // By number: the chunk of the layout. First the chunks themselves, then separate gradients.
  const std::vector<uint32_t>& owners() const { return owners_; }

  void BeginMicroBatch();
  // Call when a step has ended, or its micro-batches are discarded.
  void BeginStep();

  // False from when its gradient has overwritten it until that gradient has left.
  bool WeightIsThere(uint32_t tensor) const;
  // FAILED_PRECONDITION if WeightIsThere is false. Names the parameter and what to do.
  absl::Status CheckWeight(uint32_t tensor) const;
  // FAILED_PRECONDITION if the parameter takes no gradient, or no further one.
  absl::Status CheckGradient(uint32_t tensor) const;
  void Write(uint32_t tensor);
  int written(uint32_t tensor) const { return written_[tensor]; }
  // True if it was written in any micro-batch of this step.
  bool written_in_step(uint32_t tensor) const { return written_in_step_[tensor]; }

  // Whether all gradients of the chunk are complete. False if it has none.
  bool Complete(uint32_t chunk) const;
  void Reduce(uint32_t chunk);
  bool IsReduced(uint32_t chunk) const { return chunks_[chunk].reduced; }
  // How often the chunk was reduced in this step.
  int reductions(uint32_t chunk) const { return chunks_[chunk].reductions; }
  // Whether a parameter of the chunk has received a gradient in this micro-batch.
  bool HasGradient(uint32_t chunk) const;
  // Whether every chunk with a trained parameter was reduced `times` times in this step.
  bool AllReduced(int times) const;
  // How many chunks have a gradient that was reduced in this micro-batch.
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
