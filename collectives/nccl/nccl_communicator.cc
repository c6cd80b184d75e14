#include "collectives/nccl/nccl_communicator.h"

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "collectives/communicator_backend.h"
#include "collectives/failure.h"
#include "collectives/nccl/nccl_group.h"
#include "gpu/nccl_api.h"
#include "kernels/numeric/reduce_rows/reduce_rows_cuda.h"
#include "kernels/runtime/common/absl_status.h"
#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/float16.h"
#include "kernels/runtime/cuda/launcher.h"

namespace geminid::collectives {
namespace {

using gpu::NcclResult;
using gpu::NcclType;

CUdeviceptr Address(const std::byte* place) { return reinterpret_cast<uintptr_t>(place); }

// Calls NCCL for a group's messages and copies, until NCCL refuses one.
class Calls {
 public:
  explicit Calls(const NcclGroup& group) : group_(group) {}
  void Send(const std::byte* from, size_t bytes, int peer) {
    if (bytes == 0) return;
    Note(group_.nccl().send(from, bytes, NcclType::kUint8, peer, group_.comm(), group_.stream()));
  }
  void Receive(std::byte* to, size_t bytes, int peer) {
    if (bytes == 0) return;
    Note(group_.nccl().receive(to, bytes, NcclType::kUint8, peer, group_.comm(), group_.stream()));
  }
  void Note(NcclResult result) {
    if (result_ == NcclResult::kSuccess || result_ == NcclResult::kInProgress) result_ = result;
  }
  NcclResult result() const { return result_; }

 private:
  const NcclGroup& group_;
  NcclResult result_ = NcclResult::kSuccess;
};

template <typename T>
kernels::Status ReduceAs(const Operation& operation, const std::byte* rows, size_t ranks,
                         size_t count, std::byte* out, CUstream stream) {
  constexpr kernels::RowReduction kReductions[] = {
      kernels::RowReduction::kSum, kernels::RowReduction::kMin, kernels::RowReduction::kMax};
  return kernels::ReduceRowsCuda<T>(reinterpret_cast<const T*>(rows), ranks, count,
                                    kReductions[static_cast<size_t>(operation.reduce)],
                                    operation.scale, reinterpret_cast<T*>(out), stream);
}

kernels::Status Reduce(const Operation& operation, const std::byte* rows, size_t ranks,
                       size_t count, std::byte* out, CUstream stream) {
  const auto as = [&]<typename T>() {
    return ReduceAs<T>(operation, rows, ranks, count, out, stream);
  };
  switch (operation.dtype) {
    case DType::kFloat32:
      return as.operator()<float>();
    case DType::kBFloat16:
      return as.operator()<kernels::BFloat16>();
    case DType::kFloat16:
      return as.operator()<kernels::Float16>();
    case DType::kFloat64:
      return as.operator()<double>();
    case DType::kInt32:
      return as.operator()<int32_t>();
    case DType::kInt64:
      return as.operator()<int64_t>();
    case DType::kUint8:
      return as.operator()<uint8_t>();
  }
  return kernels::Status::kUnsupported;
}

class NcclBackend final : public CommunicatorBackend {
 public:
  NcclBackend(std::unique_ptr<Communicator> control, std::unique_ptr<NcclGroup> group)
      : CommunicatorBackend(control->Rank(), control->WorldSize(), control->timeout()),
        control_communicator_(std::move(control)),
        control_(BackendOf(*control_communicator_)),
        group_(std::move(group)) {}

  const char* BackendName() const override { return "nccl"; }
  SegmentBooks* Books() const override { return control_.Books(); }

  absl::Status DoAllGather(const Operation& operation, const std::byte* in, std::byte* out,
                           const Partition& parts) override {
    GEMINID_RETURN_IF_ERROR(Agree(operation));
    const size_t width = SizeOf(operation.dtype);
    const size_t own = parts.Count(Rank()) * width;
    for (int r = 0; r < WorldSize(); ++r) Count(r, own, parts.Count(r) * width);
    if (parts.total() == 0) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(const CallBuffers given, Give(nullptr, 0, out, parts.total() * width));
    const bool is_even = parts.total() % static_cast<size_t>(WorldSize()) == 0;
    std::byte* const own_out = given.out + parts.Begin(Rank()) * width;
    if (!is_even || given.out != out || !group_->MayGive({in, own})) {
      GEMINID_RETURN_IF_ERROR(CopyOwn(in, own, own_out));
      in = own_out;
    }
    GEMINID_RETURN_IF_ERROR(Group(operation, [&](Calls& calls) {
      if (is_even) {
        calls.Note(group_->nccl().all_gather(in, given.out, own, NcclType::kUint8, group_->comm(),
                                             group_->stream()));
        return;
      }
      for (int r = 0; r < WorldSize(); ++r) {
        if (r == Rank()) continue;
        calls.Send(in, own, r);
        calls.Receive(given.out + parts.Begin(r) * width, parts.Count(r) * width, r);
      }
    }));
    return CopyOwn(given.out, parts.total() * width, out);
  }

  absl::Status DoReduceScatter(const Operation& operation, const std::byte* in, std::byte* out,
                               const Partition& parts) override {
    GEMINID_RETURN_IF_ERROR(Agree(operation));
    const size_t width = SizeOf(operation.dtype);
    const size_t own = parts.Count(Rank()) * width;
    for (int r = 0; r < WorldSize(); ++r) Count(r, parts.Count(r) * width, own);
    if (parts.total() == 0) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(const CallBuffers given, Give(in, parts.total() * width, nullptr, 0));
    GEMINID_ASSIGN_OR_RETURN(std::byte* const rows, Rows(own));
    GEMINID_RETURN_IF_ERROR(
        CopyOwn(in + parts.Begin(Rank()) * width, own, rows + static_cast<size_t>(Rank()) * own));
    GEMINID_RETURN_IF_ERROR(Group(operation, [&](Calls& calls) {
      for (int r = 0; r < WorldSize(); ++r) {
        if (r == Rank()) continue;
        calls.Send(given.in + parts.Begin(r) * width, parts.Count(r) * width, r);
        calls.Receive(rows + static_cast<size_t>(r) * own, own, r);
      }
    }));
    return ReduceInto(operation, rows, parts.Count(Rank()), out);
  }

  absl::Status DoBroadcast(const Operation& operation, std::byte* inout) override {
    GEMINID_RETURN_IF_ERROR(Agree(operation));
    const size_t bytes = operation.count * SizeOf(operation.dtype);
    const int root = operation.root_or_tag;
    if (Rank() == root) {
      for (int r = 0; r < WorldSize(); ++r) Count(r, bytes, 0);
    } else {
      Count(root, 0, bytes);
    }
    if (bytes == 0) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(const CallBuffers given, Give(nullptr, 0, inout, bytes));
    if (Rank() == root) GEMINID_RETURN_IF_ERROR(CopyOwn(inout, bytes, given.out));
    GEMINID_RETURN_IF_ERROR(Group(operation, [&](Calls& calls) {
      calls.Note(group_->nccl().broadcast(given.out, given.out, bytes, NcclType::kUint8, root,
                                          group_->comm(), group_->stream()));
    }));
    return CopyOwn(given.out, bytes, inout);
  }

  absl::Status DoAllToAll(const Operation& operation, const std::byte* in,
                          std::byte* out) override {
    GEMINID_RETURN_IF_ERROR(Agree(operation));
    const size_t bytes = operation.count * SizeOf(operation.dtype);
    const auto at = [&](int rank) { return static_cast<size_t>(rank) * bytes; };
    for (int r = 0; r < WorldSize(); ++r) Count(r, bytes, bytes);
    if (bytes == 0) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(const CallBuffers given,
                             Give(in, at(WorldSize()), out, at(WorldSize())));
    GEMINID_RETURN_IF_ERROR(CopyOwn(in + at(Rank()), bytes, given.out + at(Rank())));
    GEMINID_RETURN_IF_ERROR(Group(operation, [&](Calls& calls) {
      for (int r = 0; r < WorldSize(); ++r) {
        if (r == Rank()) continue;
        calls.Send(given.in + at(r), bytes, r);
        calls.Receive(given.out + at(r), bytes, r);
      }
    }));
    return CopyOwn(given.out, at(WorldSize()), out);
  }

  absl::Status DoBarrier(const Operation& operation) override { return Agree(operation); }

  absl::Status DoAllReduce(const Operation& operation, const std::byte* in,
                           std::byte* out) override {
    const size_t bytes = operation.count * SizeOf(operation.dtype);
    if (bytes > kDirectAllReduceBytes) {
      return CommunicatorBackend::DoAllReduce(operation, in, out);
    }
    GEMINID_ASSIGN_OR_RETURN(std::byte* const rows, Rows(bytes));
    const size_t elements = operation.count * static_cast<size_t>(WorldSize());
    GEMINID_RETURN_IF_ERROR(DoAllGather(operation, in, rows, Partition(elements, WorldSize())));
    return ReduceInto(operation, rows, operation.count, out);
  }

  absl::Status DoReduce(const Operation& operation, const std::byte* in, std::byte* out) override {
    if (Rank() != operation.root_or_tag) return DoGather(operation, in, nullptr);
    GEMINID_ASSIGN_OR_RETURN(std::byte* const rows,
                             Rows(operation.count * SizeOf(operation.dtype)));
    GEMINID_RETURN_IF_ERROR(DoGather(operation, in, rows));
    return ReduceInto(operation, rows, operation.count, out);
  }

  absl::Status DoSendReceive(const Message* send, const Message* receive) override {
    GEMINID_RETURN_IF_ERROR(AgreeOnMessages(send, receive));
    if (send != nullptr) CountSent(send->peer, send->bytes());
    if (receive != nullptr) CountReceived(receive->peer, receive->bytes());
    const bool sends = send != nullptr && send->bytes() > 0;
    const bool receives = receive != nullptr && receive->bytes() > 0;
    if (!sends && !receives) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(
        const CallBuffers given,
        Give(sends ? send->in : nullptr, sends ? send->bytes() : 0,
             receives ? receive->out : nullptr, receives ? receive->bytes() : 0));
    const Operation& operation = send != nullptr ? send->operation : receive->operation;
    GEMINID_RETURN_IF_ERROR(Group(operation, [&](Calls& calls) {
      if (sends) calls.Send(given.in, send->bytes(), send->peer);
      if (receives) calls.Receive(given.out, receive->bytes(), receive->peer);
    }));
    return receives ? CopyOwn(given.out, receive->bytes(), receive->out) : absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Communicator>> DoSubset(const std::string& key,
                                                         std::span<const int> ranks,
                                                         Messages /*messages*/) override {
    GEMINID_ASSIGN_OR_RETURN(auto control, control_communicator_->Subset(key, ranks));
    control->SetTimeout(timeout());
    return ConnectNccl(group_->place(), std::move(control));
  }

  absl::Status CopyOwn(const std::byte* from, size_t bytes, std::byte* to) override {
    if (bytes == 0 || from == to) return absl::OkStatus();
    return Told(group_->OnStream({.kind = OpKind::kSend, .count = bytes}, timeout(), [&] {
      return group_->Check(
          group_->place().driver->memcpy_async(Address(to), Address(from), bytes, group_->stream()),
          "cuMemcpyAsync");
    }));
  }

 protected:
  void DoAbort(const absl::Status& status) override { control_.Abort(status); }
  absl::Status DoCheckHealth() const override { return control_.health(); }
  absl::Status DoDetectDeadRanks() override { return control_.DetectDeadRanks(); }
  uint64_t RegisteredBytes() const override { return group_->registered_bytes(); }

 private:
  // Returns when all ranks are about to execute the same operation.
  absl::Status Agree(const Operation& operation) {
    control_.SetTimeout(timeout());
    return control_.DoBarrier(operation);
  }

  // Both ends of a message exchange their operations and compare them.
  absl::Status AgreeOnMessages(const Message* send, const Message* receive) {
    control_.SetTimeout(timeout());
    const Operation letter = {.kind = OpKind::kSend, .count = sizeof(Operation)};
    Operation theirs;
    Message sent = {.operation = letter};
    Message received = {.operation = letter, .out = reinterpret_cast<std::byte*>(&theirs)};
    if (send != nullptr) {
      sent.peer = send->peer;
      sent.in = reinterpret_cast<const std::byte*>(&send->operation);
    }
    if (receive != nullptr) received.peer = receive->peer;
    GEMINID_RETURN_IF_ERROR(control_.DoSendReceive(send == nullptr ? nullptr : &sent,
                                                   receive == nullptr ? nullptr : &received));
    if (receive == nullptr || theirs == receive->operation) return absl::OkStatus();
    Operation own = receive->operation;
    if (own.kind == OpKind::kSend) own.kind = OpKind::kReceive;
    return Told(MismatchError(Rank(), own, receive->peer, theirs));
  }

  template <typename Queue>
  absl::Status Group(const Operation& operation, const Queue& queue) {
    return Told(group_->InGroup(operation, timeout(), [&] {
      Calls calls(*group_);
      queue(calls);
      return calls.result();
    }));
  }

  absl::StatusOr<std::byte*> Rows(size_t bytes) {
    auto rows = group_->Rows(bytes * static_cast<size_t>(WorldSize()));
    if (!rows.ok()) return Told(rows.status());
    return rows;
  }

  // The memory that NCCL gets: the caller's, or staging if NCCL may not get that.
  struct CallBuffers {
    const std::byte* in;  // has the caller's bytes
    std::byte* out;       // if not the caller's memory, the result must be copied on
  };
  absl::StatusOr<CallBuffers> Give(const std::byte* in, size_t in_bytes, std::byte* out,
                                   size_t out_bytes) {
    const bool stages_in = !group_->MayGive({in, in_bytes});
    const bool stages_out = !group_->MayGive({out, out_bytes});
    CallBuffers given = {.in = in, .out = out};
    if (!stages_in && !stages_out) return given;
    constexpr size_t kAlignment = 256;
    const size_t in_room = stages_in ? base::RoundUp(in_bytes, kAlignment) : 0;
    const auto staging = group_->Staging(in_room + (stages_out ? out_bytes : 0));
    if (!staging.ok()) return Told(staging.status());
    if (stages_in) {
      GEMINID_RETURN_IF_ERROR(CopyOwn(in, in_bytes, *staging));
      given.in = *staging;
    }
    if (stages_out) given.out = *staging + in_room;
    return given;
  }

  absl::Status ReduceInto(const Operation& operation, const std::byte* rows, size_t count,
                          std::byte* out) {
    if (count == 0) return absl::OkStatus();
    return Told(group_->OnStream(operation, timeout(), [&] {
      const kernels::Status status =
          Reduce(operation, rows, static_cast<size_t>(WorldSize()), count, out, group_->stream());
      if (status != kernels::Status::kUnsupported) return kernels::FromKernel(status, "ReduceRows");
      return absl::UnavailableError(
          absl::StrCat("the GPU refused ReduceRows: ", kernels::cuda::LastRefusal()));
    }));
  }

  // A failure here fails all ranks, with the message of the first one to fail.
  absl::Status Told(const absl::Status& status) {
    if (status.ok()) return status;
    control_.Abort(status);
    return control_.health();
  }

  void Count(int peer, size_t sent, size_t received) {
    if (peer == Rank()) return;
    CountSent(peer, sent);
    CountReceived(peer, received);
  }

  const std::unique_ptr<Communicator> control_communicator_;
  CommunicatorBackend& control_;
  const std::unique_ptr<NcclGroup> group_;  // destroyed before what it watches
};

// What each rank contributes, sent as raw bytes.
struct RankSetup {
  std::array<char, 16> gpu;
  std::array<char, 8> has_library;  // [0]: 1 or 0
};

absl::Status CheckOffers(std::span<const RankSetup> offers, int rank, const std::string& error) {
  for (size_t r = 0; r < offers.size(); ++r) {
    if (offers[r].has_library[0] == 0) {
      const bool own = static_cast<int>(r) == rank;
      return absl::UnavailableError(
          absl::StrCat("rank ", r, " has no NCCL", own ? ": " : "", own ? error : ""));
    }
    for (size_t other = 0; other < r; ++other) {
      if (offers[other].gpu == offers[r].gpu) {
        return absl::UnavailableError(
            absl::StrCat("ranks ", other, " and ", r, " share a GPU, which NCCL does not allow"));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<gpu::NcclId> ShareId(const gpu::NcclApi& nccl, Communicator& control) {
  struct {
    gpu::NcclId id;
    NcclResult result;
  } shared = {};
  if (control.Rank() == 0) shared.result = nccl.get_unique_id(&shared.id);
  GEMINID_RETURN_IF_ERROR(control.Broadcast(Buffer(&shared, sizeof(shared), DType::kUint8), 0));
  if (shared.result == NcclResult::kSuccess) return shared.id;
  return absl::UnavailableError(
      absl::StrCat("NCCL: ncclGetUniqueId on rank 0: ", nccl.error_string(shared.result)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> ConnectNccl(const NcclPlace& place,
                                                          std::unique_ptr<Communicator> control,
                                                          size_t scratch_bytes) {
  std::string error;
  const gpu::NcclApi* const nccl = gpu::ProcessNccl(&error);
  CUuuid uuid = {};
  if (place.driver->device_get_uuid(&uuid, place.device) != CUDA_SUCCESS) {
    return absl::UnavailableError("NCCL: the driver does not know the rank's GPU");
  }
  RankSetup offer = {};
  std::memcpy(offer.gpu.data(), uuid.bytes, offer.gpu.size());
  offer.has_library[0] = nccl == nullptr ? 0 : 1;
  std::vector<RankSetup> offers(static_cast<size_t>(control->WorldSize()));
  GEMINID_RETURN_IF_ERROR(
      control->AllGather(ConstBuffer(&offer, sizeof(offer), DType::kUint8),
                         Buffer(offers.data(), offers.size() * sizeof(RankSetup), DType::kUint8)));
  GEMINID_RETURN_IF_ERROR(CheckOffers(offers, control->Rank(), error));
  GEMINID_ASSIGN_OR_RETURN(const gpu::NcclId id, ShareId(*nccl, *control));
  CommunicatorBackend& backend = BackendOf(*control);
  auto group =
      NcclGroup::Create(place, nccl, id, control->Rank(), control->WorldSize(), control->timeout(),
                        [&backend] { return backend.DetectDeadRanks(); });
  // A rank that cannot tells the others, and all of them do without.
  absl::Status mine = group.status();
  if (mine.ok() && scratch_bytes > 0) mine = (*group)->Rows(scratch_bytes).status();
  if (!mine.ok()) backend.Abort(mine);
  uint8_t all_told = mine.ok() && (*group)->TellAll(scratch_bytes) ? 1 : 0;
  const Buffer told(&all_told, 1, DType::kUint8);
  GEMINID_RETURN_IF_ERROR(control->AllReduce(told, told, ReduceOp::kMin));
  if (all_told == 0) (*group)->TellNothing();
  const absl::Duration timeout = control->timeout();
  auto communicator = std::make_unique<Communicator>(
      std::make_unique<NcclBackend>(std::move(control), *std::move(group)));
  communicator->SetTimeout(timeout);
  BackendOf(*communicator).counter()->TakeOver(*backend.counter());
  return communicator;
}

}  // namespace geminid::collectives
