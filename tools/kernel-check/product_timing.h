// Measures timed products (timed_products.h) on device 0.
#ifndef GEMINID_TOOLS_KERNEL_CHECK_PRODUCT_TIMING_H_
#define GEMINID_TOOLS_KERNEL_CHECK_PRODUCT_TIMING_H_

#include <memory>
#include <string>

#include "gpu/cublaslt_api.h"
#include "kernels/model/matmul/matmul_library_cuda.h"
#include "tools/kernel-check/timed_products.h"

namespace geminid::kernel_check {

// Loads cuBLASLt twice: as training uses it, and as a bare table with a handle for the bare loop.
// One thread, after FindCudaDevice.
class ProductTimer {
 public:
  // Null, with the cause in *reason, if no cuBLASLt starts.
  static std::unique_ptr<ProductTimer> Create(std::string* reason);
  ProductTimer(const ProductTimer&) = delete;
  ProductTimer& operator=(const ProductTimer&) = delete;
  ~ProductTimer();

  std::string LibraryName() const { return library_->Name(); }
  // `judged`: the product is large enough for a verdict, and measured long enough for one.
  ProductTiming Time(const TimedProduct& product, bool judged);

 private:
  ProductTimer() = default;
  template <typename In, typename Out>
  void TimeAs(bool judged, ProductTiming* timing);

  std::unique_ptr<kernels::MatmulLibrary> library_;
  gpu::CublasLtApi api_;
  gpu::LtHandle handle_ = nullptr;
};

}  // namespace geminid::kernel_check

#endif  // GEMINID_TOOLS_KERNEL_CHECK_PRODUCT_TIMING_H_
