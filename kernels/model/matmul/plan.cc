#include "kernels/model/matmul/plan.h"

#include <dlfcn.h>

#include "kernels/runtime/simd/isa.h"

namespace geminid::kernels {
namespace {

using dnnl::memory;

const dnnl::engine& CpuEngine() {
  static const dnnl::engine engine = [] {
    LimitOneDnn();
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

dnnl::stream& ThreadStream() {
  thread_local dnnl::stream stream(CpuEngine());
  return stream;
}

// op(stored) as oneDNN sees it: dimensions of the operand, strides of the storage.
memory::desc Describe(size_t rows, size_t cols, size_t stride, Transpose transpose,
                      memory::data_type type) {
  const auto step = static_cast<memory::dim>(stride);
  const memory::dims dims = {static_cast<memory::dim>(rows), static_cast<memory::dim>(cols)};
  const memory::dims strides =
      transpose == Transpose::kYes ? memory::dims{1, step} : memory::dims{step, 1};
  return {dims, type, strides};
}

memory Unbound(const memory::desc& desc) { return {desc, CpuEngine(), DNNL_MEMORY_NONE}; }

// The OpenMP control of the runtime that oneDNN itself loaded, or null if oneDNN was built without
// OpenMP. It is looked up, not linked: only the oneDNN build knows which runtime it uses.
template <typename Function>
Function* OpenMp(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

int OpenMpThreads() {
  static auto* const get = OpenMp<int()>("omp_get_max_threads");
  return get == nullptr ? 1 : get();
}

void SetOpenMpThreads(int threads) {
  static auto* const set = OpenMp<void(int)>("omp_set_num_threads");
  if (set != nullptr) set(threads);
}

}  // namespace

Plan::Plan(const PlanKey& key) {
  const MatmulShape& s = key.shape;
  const auto a = Describe(s.m, s.k, s.a_stride, s.transpose_a, key.in);
  const auto b = Describe(s.k, s.n, s.b_stride, s.transpose_b, key.in);
  const auto c = Describe(s.m, s.n, s.c_stride, Transpose::kNo, key.out);
  const auto bias = Describe(1, s.n, s.n, Transpose::kNo, key.out);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.accumulate) {
    dnnl::post_ops add_c;
    add_c.append_sum(1.0F);
    attributes.set_post_ops(add_c);
  }
  const auto desc = s.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  const dnnl::matmul::primitive_desc planned(desc, attributes, CpuEngine());
  primitive_ = dnnl::matmul(planned);
  scratchpad_bytes_ = planned.scratchpad_desc().get_size();
  a_ = Unbound(a);
  b_ = Unbound(b);
  c_ = Unbound(c);
  arguments_ = {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}};
  if (s.bias) {
    bias_ = Unbound(bias);
    arguments_[DNNL_ARG_BIAS] = bias_;
  }
  if (scratchpad_bytes_ > 0) {
    scratchpad_ = Unbound(planned.scratchpad_desc());
    arguments_[DNNL_ARG_SCRATCHPAD] = scratchpad_;
  }
}

void Plan::Run(const void* a, const void* b, const void* bias, void* c, void* scratchpad) {
  // oneDNN's type for inputs is void* too, but it only reads them.
  a_.set_data_handle(const_cast<void*>(a));
  b_.set_data_handle(const_cast<void*>(b));
  c_.set_data_handle(c);
  if (bias_) bias_.set_data_handle(const_cast<void*>(bias));
  if (scratchpad_) scratchpad_.set_data_handle(scratchpad);
  primitive_.execute(ThreadStream(), arguments_);
}

PlanCache& PlanCache::OfThisThread() {
  thread_local PlanCache cache;
  return cache;
}

Plan& PlanCache::Get(const PlanKey& key) {
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->key != key) continue;
    entries_.splice(entries_.begin(), entries_, entry);
    return entries_.front().plan;
  }
  entries_.push_front({key, Plan(key)});
  if (entries_.size() > kPlansMax) entries_.pop_back();
  return entries_.front().plan;
}

SingleThread::SingleThread() : saved_threads_(OpenMpThreads()) {
  if (saved_threads_ != 1) SetOpenMpThreads(1);
}

SingleThread::~SingleThread() {
  if (saved_threads_ != 1) SetOpenMpThreads(saved_threads_);
}

}  // namespace geminid::kernels
