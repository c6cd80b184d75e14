#include "client/device/cuda/cuda_device.h"

#include <map>
#include <mutex>
#include <utility>

#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "client/device/cuda/cuda_arena.h"
#include "client/device/cuda/cuda_context.h"
#include "client/device/cuda/cuda_event.h"
#include "client/device/cuda/cuda_ops.h"
#include "client/device/cuda/cuda_stream.h"
#include "client/device/cuda/host_registry.h"
#include "collectives/nccl/nccl_communicator.h"

namespace geminid::device {
namespace {

absl::Status NoViews() {
  return absl::UnimplementedError(
      "a GPU's arena does not support views at stable addresses yet; make no stable addresses");
}

class CudaDevice final : public Device {
 public:
  CudaDevice(const std::shared_ptr<CudaContext>& context, uint64_t granularity_bytes,
             const CudaDeviceOptions& options)
      : context_(context),
        arena_(context, granularity_bytes),
        registry_(context, kRegisteredPieceBytes, options.on_registration),
        memory_{context, &arena_, &registry_, options.completes_by_events},
        ops_(memory_) {}
  ~CudaDevice() override { buffers_->RemoveAll(); }

  absl::Status MakeStreams();

  std::string name() const override { return "cuda"; }

  absl::Status ReserveArena(uint64_t bytes) override { return arena_.Reserve(bytes); }
  absl::Status ImportSlab(base::UniqueFd slab, uint64_t offset, uint64_t bytes) override {
    GEMINID_RETURN_IF_ERROR(arena_.Import(slab, offset, bytes));
    buffers_->Add({arena_.base() + offset, bytes});
    return absl::OkStatus();
  }
  absl::Status ReleaseSlabs() override {
    buffers_->RemoveAll();
    return arena_.Release();
  }

  // A view would map part of a slab with cuMemMap, but the driver maps only whole allocations.
  absl::Status ReserveViews(uint64_t /*bytes*/) override { return NoViews(); }
  void ReleaseViews() override {}
  std::byte* views() const override { return nullptr; }
  absl::Status MapView(uint64_t /*at*/, uint64_t /*offset*/, uint64_t /*bytes*/) override {
    return NoViews();
  }
  absl::Status UnmapView(uint64_t /*at*/, uint64_t /*bytes*/) override { return NoViews(); }
  absl::Status FillView(uint64_t /*at*/, uint64_t /*bytes*/) override { return NoViews(); }
  absl::Status RegisterHost(std::span<std::byte> memory) override { return registry_.Add(memory); }
  void UnregisterHost(std::span<std::byte> memory) override { registry_.Remove(memory); }
  std::byte* base() const override { return arena_.base(); }
  MemoryInfo memory_info() const override {
    return {arena_.reserved_bytes(), arena_.imported_bytes()};
  }
  HostRegistration host_registration() const override {
    const HostRegistrationCounts host = registry_.totals();
    return {.bytes = host.given_bytes,
            .registered_bytes = host.registered_bytes,
            .refused_bytes = host.refused_bytes,
            .refusal = std::string(registry_.status().message())};
  }
  std::byte* HostAddress(std::byte* address) const override {
    return arena_.Contains(address) ? nullptr : address;
  }

  absl::StatusOr<std::unique_ptr<collectives::Communicator>> ConnectRanks(
      std::unique_ptr<collectives::Communicator> control, uint64_t scratch_bytes) override {
    return collectives::ConnectNccl({.driver = &context_->api(),
                                     .device = context_->device(),
                                     .context = context_->handle(),
                                     .buffers = buffers_},
                                    std::move(control), scratch_bytes);
  }

  CopyStream& copy_stream(Direction direction) override {
    return direction == Direction::kHostToDevice ? *to_device_ : *to_host_;
  }
  Stream& compute_stream() override { return *compute_; }
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(const std::string& name) override {
    return Make(name, greatest_priority_);
  }
  absl::StatusOr<Stream*> StreamOf(StreamHandle handle) override;
  std::shared_ptr<Gate> MakeGate() override;
  DeviceOps& ops() override { return ops_; }

 private:
  absl::StatusOr<std::unique_ptr<CudaStream>> Make(const std::string& name, int priority);

  const std::shared_ptr<CudaContext> context_;
  // The slabs: ranks exchange data in them.
  const std::shared_ptr<collectives::NcclBuffers> buffers_ =
      std::make_shared<collectives::NcclBuffers>();
  CudaArena arena_;  // declared before the streams, which are destroyed first and finish their work
  HostRegistry registry_;
  const CudaMemory memory_;
  CudaOps ops_;
  int greatest_priority_ = 0;
  std::unique_ptr<CudaStream> to_device_;
  std::unique_ptr<CudaStream> to_host_;
  std::unique_ptr<CudaStream> compute_;
  std::mutex mutex_;
  std::map<void*, std::unique_ptr<CudaStream>> borrowed_;  // guarded by mutex_
};

// Low priority, because copies share the front end with kernels, though not their engines.
absl::Status CudaDevice::MakeStreams() {
  int least_priority = 0;
  {
    const CudaContext::Scope scope(*context_);
    GEMINID_RETURN_IF_ERROR(context_->Check(
        context_->api().ctx_get_stream_priority_range(&least_priority, &greatest_priority_),
        "cuCtxGetStreamPriorityRange"));
  }
  GEMINID_ASSIGN_OR_RETURN(to_device_, Make("geminid-h2d", least_priority));
  GEMINID_ASSIGN_OR_RETURN(to_host_, Make("geminid-d2h", least_priority));
  GEMINID_ASSIGN_OR_RETURN(compute_, Make("geminid-compute", greatest_priority_));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CudaStream>> CudaDevice::Make(const std::string& name,
                                                             int priority) {
  const CudaContext::Scope scope(*context_);
  CUstream stream = nullptr;
  GEMINID_RETURN_IF_ERROR(context_->Check(
      context_->api().stream_create_with_priority(&stream, CU_STREAM_NON_BLOCKING, priority),
      "cuStreamCreateWithPriority"));
  return CudaStream::Wrap(memory_, stream, CudaStream::Ownership::kOwned, name);
}

absl::StatusOr<Stream*> CudaDevice::StreamOf(StreamHandle handle) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<CudaStream>& found = borrowed_[handle.value];
  if (found == nullptr) {
    GEMINID_ASSIGN_OR_RETURN(found,
                             CudaStream::Wrap(memory_, static_cast<CUstream>(handle.value),
                                              CudaStream::Ownership::kBorrowed, "geminid-trainer"));
  }
  return found.get();
}

std::shared_ptr<Gate> CudaDevice::MakeGate() {
  absl::StatusOr<StreamWord> word = context_->TakeWord();
  context_->Fail(word.status());
  return std::make_shared<CudaGate>(context_, word.ok() ? *word : StreamWord{});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const CudaDeviceOptions& options) {
  GEMINID_ASSIGN_OR_RETURN(const std::shared_ptr<CudaContext> context,
                           CudaContext::Create(options.uuid));
  GEMINID_ASSIGN_OR_RETURN(const uint64_t granularity_bytes, GranularityOf(*context));
  auto device = std::make_unique<CudaDevice>(context, granularity_bytes, options);
  GEMINID_RETURN_IF_ERROR(device->MakeStreams());
  return device;
}

}  // namespace geminid::device
