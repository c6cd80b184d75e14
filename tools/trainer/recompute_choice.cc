#include "tools/trainer/recompute_choice.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "base/status_macros.h"
#include "kernels/model/matmul/matmul.h"
#include "kernels/runtime/common/absl_status.h"
#include "tools/trainer/transformer.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kSpareBytes = uint64_t{64} << 20;
// Long enough to be timed, short enough not to be noticed.
constexpr size_t kMeasuredTokens = 256;
constexpr size_t kMeasuredCopyBytes = size_t{8} << 20;

MicroBatchShape ShapeOf(const TrainOptions& options, int world_size) {
  return {.sequences = options.batch / static_cast<uint64_t>(world_size),
          .sequence_length = options.model.context};
}

// Of the second of two calls: the first one pays for pages and plans.
template <typename Call>
double SecondsOf(const Call& call) {
  call();
  const auto began = std::chrono::steady_clock::now();
  call();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  return std::max(took.count(), 1e-9);
}

// Of a product such as the MLP's.
template <typename T>
absl::StatusOr<double> OperationsPerSecond(const ModelConfig& config) {
  const kernels::MatmulShape shape = {
      .m = kMeasuredTokens, .n = Tiling{}.mlp_columns, .k = config.hidden};
  size_t bytes = 0;
  GEMINID_RETURN_IF_ERROR(
      FromKernel(kernels::MatmulWorkspaceBytes<T, T>(shape, &bytes), "MatmulWorkspaceBytes"));
  // Aligned as the kernel asks for.
  std::vector<std::byte> storage(bytes + 64);
  void* scratch = storage.data();
  size_t space = storage.size();
  std::align(64, bytes, scratch, space);
  const std::vector<T> a(shape.m * shape.k), b(shape.k * shape.n);
  std::vector<T> c(shape.m * shape.n);
  kernels::Status status = kernels::Status::kOk;
  const double seconds = SecondsOf([&] {
    status = kernels::Matmul<T, T>(shape, a.data(), b.data(), nullptr, c.data(), scratch, bytes);
  });
  GEMINID_RETURN_IF_ERROR(FromKernel(status, "Matmul"));
  return 2 * static_cast<double>(shape.m * shape.n * shape.k) / seconds;
}

double CopiedBytesPerSecond() {
  std::vector<std::byte> from(kMeasuredCopyBytes), to(kMeasuredCopyBytes);
  return static_cast<double>(kMeasuredCopyBytes) /
         SecondsOf([&] { std::memcpy(to.data(), from.data(), to.size()); });
}

absl::StatusOr<RecomputeSpeed> Measure(const TrainOptions& options, size_t threads,
                                       collectives::Communicator& communicator) {
  GEMINID_ASSIGN_OR_RETURN(const double operations,
                           options.zero.data_type == zero::DataType::kFloat32
                               ? OperationsPerSecond<float>(options.model)
                               : OperationsPerSecond<kernels::BFloat16>(options.model));
  const double link = options.copy_bytes_per_second > 0
                          ? static_cast<double>(options.copy_bytes_per_second)
                          : CopiedBytesPerSecond();
  std::vector<double> slowest = {operations, link};
  GEMINID_RETURN_IF_ERROR(communicator.AllReduce(slowest, slowest, collectives::ReduceOp::kMin));
  // A rank loads its share of a chunk; the rest comes from the other ranks.
  return RecomputeSpeed{
      .operations = RecomputedOperations(options.model, ShapeOf(options, communicator.WorldSize())),
      .operations_per_second = slowest[0] * static_cast<double>(threads),
      .link_bytes_per_second = slowest[1] * communicator.WorldSize()};
}

}  // namespace

uint64_t WholeModelBytes(const TrainOptions& options) {
  // Per parameter: 12 bytes of state, a gathered weight, its gradient, and sums of gradients in
  // fp32 with a place to land when there are several micro-batches. Padding and spares come on top.
  constexpr uint64_t kStateBytes = 12;
  const uint64_t element = zero::SizeOf(options.zero.data_type);
  const uint64_t per_parameter =
      kStateBytes + 2 * element + (options.zero.accumulate > 1 ? sizeof(float) + element : 0);
  const uint64_t model = CountParameters(options.model) * per_parameter;
  return model + model / 4 + kSpareBytes;
}

absl::StatusOr<RecomputeChoice> ChooseRecompute(const TrainOptions& options,
                                                const ModelParameters& parameters,
                                                const zero::Statistics& statistics, bool on_gpu,
                                                size_t threads,
                                                collectives::Communicator& communicator) {
  if (options.recompute != Recompute::kAuto) {
    return RecomputeChoice{options.recompute == Recompute::kOff, "as asked"};
  }
  std::vector<double> least = {static_cast<double>(statistics.arena_bytes)};
  GEMINID_RETURN_IF_ERROR(communicator.AllReduce(least, least, collectives::ReduceOp::kMin));
  const MicroBatchShape shape = ShapeOf(options, communicator.WorldSize());
  const zero::DataType type = options.zero.data_type;
  // Sums of gradients over micro-batches lie beside the weights.
  const uint64_t sums = options.zero.accumulate > 1 ? 2 : 1;
  const RecomputeRoom room = {
      .placement = options.zero.placement,
      .arena_bytes = static_cast<uint64_t>(least[0]),
      .workspace_bytes = WorkspaceBytesBound(options.model, type, shape, {}, threads),
      .kept_bytes = KeptBytes(options.model, type, shape),
      .whole_model_bytes = WholeModelBytes(options),
      .weight_bytes = CountParameters(options.model) * zero::SizeOf(type),
      .working_set_bytes = sums * WorkingSetBytes(parameters, type, statistics.chunk_elements),
      .state_bytes = statistics.device_state_bytes};
  if (auto choice = ChooseByRoom(room)) return *std::move(choice);
  if (on_gpu) {
    return RecomputeChoice{false,
                           "weights would have to leave the GPU for activations, and computing "
                           "again takes no link"};
  }
  GEMINID_ASSIGN_OR_RETURN(const RecomputeSpeed speed, Measure(options, threads, communicator));
  return ChooseBySpeed(room, speed);
}

}  // namespace geminid::trainer
