#ifndef GEMINID_KERNELS_OPTIMIZERS_MUON_MUON_H_
#define GEMINID_KERNELS_OPTIMIZERS_MUON_MUON_H_

#include <cstddef>
#include <cstdint>

#include "kernels/optimizers/adamw/adamw.h"
#include "kernels/optimizers/step/parameter_arrays.h"
#include "kernels/runtime/common/status.h"
#include "kernels/runtime/parallel/thread_pool.h"

// Muon (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024) for
// matrices of r rows and c columns:
//
//   g  = grad_scale * gradient
//   m' = momentum m + (1 - momentum) g
//   u  = nesterov ? momentum m' + (1 - momentum) g : m'
//   o  = NewtonSchulz(u): about U V^T of the singular value decomposition U S V^T
//   w' = w - learning_rate (scale o + weight_decay w)
//
// The scale is MuonScale(). All other tensors are stepped by AdamW, with options of its own.
//
// State array of a matrix: m. Momentum and weights are fp32, with arithmetic, forms and NaN as in
// kernels/optimizers/step/elementwise.h. The iteration multiplies bf16 matrices, with sums in fp32
// that are rounded to bf16 once. So the bits depend on the instruction set, as those of
// kernels/model/matmul do, but on neither threads, addresses nor form.
namespace geminid::kernels {

enum class MuonRate : uint8_t {
  // 0.2 sqrt(max(r, c)): an update has the RMS of AdamW's updates, so one learning rate serves both
  // (Liu et al., "Muon is Scalable for LLM Training", arXiv 2502.16982).
  kAsAdamW,
  // sqrt(max(1, r / c)), of Jordan et al., for matrices stored as [outputs, inputs].
  kOriginal,
};

struct MuonOptions {
  double learning_rate = 1e-3;  // >= 0
  double momentum = 0.95;       // [0, 1)
  bool nesterov = true;
  MuonRate rate = MuonRate::kAsAdamW;
  double weight_decay = 0.1;  // >= 0
  double beta1 = 0.9;         // AdamW's, like the next two
  double beta2 = 0.95;
  double epsilon = 1e-8;
  uint64_t step = 1;        // >= 1; AdamW's bias correction
  double grad_scale = 1.0;  // finite or NaN
};

Status CheckMuonOptions(const MuonOptions& options);

// The options of AdamW for the tensors that are no matrices.
AdamWOptions AdamWOf(const MuonOptions& options);

// Matrices of one shape, one after the other in memory, row-major: for example a layer's experts.
struct MatrixShape {
  uint64_t matrices = 1;
  uint64_t rows = 1;
  uint64_t cols = 1;

  constexpr uint64_t Elements() const { return matrices * rows * cols; }
};

double MuonScale(MuonRate rate, const MatrixShape& shape);

// 6 bytes per element of one matrix, 8 per element of its shorter side squared, and those of the
// products, which the first call for a shape plans (kernels/model/matmul/matmul.h).
Status MuonWorkspaceBytes(const MatrixShape& shape, size_t threads, size_t* bytes);

// Steps whole matrices, on the pool's threads or, without a pool, on the caller's. `workspace` is
// aligned to 64 bytes. Errors are returned before anything is written, except when the system has
// no memory for a product.
Status MuonStep(const MuonOptions& options, const MatrixShape& shape,
                const ConstParameterArrays& old_arrays, const GradientArray& gradient,
                const ParameterArrays& new_arrays, void* workspace, size_t workspace_bytes,
                ThreadPool* pool);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_MUON_MUON_H_
