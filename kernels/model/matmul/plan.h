// One planned product: a oneDNN primitive and the memory objects it runs with. Internal to matmul.
#ifndef GEMINID_KERNELS_MODEL_MATMUL_PLAN_H_
#define GEMINID_KERNELS_MODEL_MATMUL_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <dnnl.hpp>
#include <list>
#include <unordered_map>

#include "kernels/model/matmul/matmul.h"

namespace geminid::kernels {

// The values that decide which code runs. Strides are filled in, never 0.
struct PlanKey {
  MatmulShape shape;
  dnnl::memory::data_type in;
  dnnl::memory::data_type out;

  friend bool operator==(const PlanKey&, const PlanKey&) = default;
};

// Not thread-safe: each thread has its own plans.
class Plan {
 public:
  // Throws dnnl::error; its status is dnnl_unimplemented if this machine cannot compute `key`.
  explicit Plan(const PlanKey& key);

  size_t scratchpad_bytes() const { return scratchpad_bytes_; }

  // Throws dnnl::error. Pointers as for Matmul.
  void Run(const void* a, const void* b, const void* bias, void* c, void* scratchpad);

 private:
  dnnl::matmul primitive_;
  size_t scratchpad_bytes_ = 0;
  dnnl::memory a_, b_, bias_, c_, scratchpad_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

// The plans of one thread, the most recently used first.
class PlanCache {
 public:
  static constexpr size_t kPlansMax = 64;

  static PlanCache& OfThisThread();

  // Finds or makes the plan for `key`; it is valid until the next call. Throws as Plan does.
  Plan& Get(const PlanKey& key);

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    PlanKey key;
    Plan plan;
  };
  std::list<Entry> entries_;
};

// While alive, oneDNN uses only the calling thread. With its OpenMP team, other threads would spin
// for work, and the number of threads would decide how sums are split.
class SingleThread {
 public:
  SingleThread();
  ~SingleThread();
  SingleThread(const SingleThread&) = delete;
  SingleThread& operator=(const SingleThread&) = delete;

 private:
  int saved_threads_;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_MATMUL_PLAN_H_
