#include "training/nn/gpu_axis_ranks.h"

#include <algorithm>
#include <array>

#include "base/status_macros.h"

namespace geminid::trainer {

using collectives::Buffer;
using collectives::ConstBuffer;
using collectives::DType;
using collectives::ReduceOp;
using collectives::SizeOf;

namespace {

ConstBuffer Of(ConstBuffer all, size_t at, size_t count) {
  return {all.data + at * SizeOf(all.dtype), count, all.dtype};
}
Buffer Of(Buffer all, size_t at, size_t count) {
  return {all.data + at * SizeOf(all.dtype), count, all.dtype};
}

}  // namespace

absl::Status GpuAxisRanks::Drain(ConstBuffer any) {
  std::array<std::byte, sizeof(double)> element;
  const size_t bytes = std::min(any.bytes(), SizeOf(any.dtype));
  return bytes == 0 ? absl::OkStatus() : queue_.Download(any.data, bytes, element.data());
}

absl::Status GpuAxisRanks::Copy(ConstBuffer from, Buffer to) {
  return from.data == to.data ? absl::OkStatus() : queue_.Copy(from.data, from.bytes(), to.data);
}

absl::Status GpuAxisRanks::InPieces(size_t count, size_t most,
                                    const std::function<absl::Status(BufferSlice)>& work) {
  for (size_t at = 0; at < count; at += most) {
    GEMINID_RETURN_IF_ERROR(work({.at = at, .count = std::min(most, count - at)}));
  }
  return absl::OkStatus();
}

absl::Status GpuAxisRanks::ThroughHost(
    size_t count, DType type, size_t copies,
    const std::function<absl::Status(BufferSlice, std::byte*)>& work) {
  const size_t bytes = copies * SizeOf(type);
  const size_t most = std::min(count, std::max<size_t>(1, host_bytes_ / bytes));
  GEMINID_ASSIGN_OR_RETURN(
      const collectives::Memory::Block passing,
      memory_.Allocate("buffer for exchanges of sharded layers", most * bytes));
  return InPieces(count, most, [&](BufferSlice piece) { return work(piece, passing.data()); });
}

absl::Status GpuAxisRanks::Down(ConstBuffer from, BufferSlice piece, std::byte* host) {
  const ConstBuffer some = Of(from, piece.at, piece.count);
  return queue_.Download(some.data, some.bytes(), host);
}

absl::Status GpuAxisRanks::Up(const std::byte* host, Buffer to, BufferSlice piece) {
  const Buffer some = Of(to, piece.at, piece.count);
  return queue_.Upload(host, some.bytes(), some.data);
}

absl::Status GpuAxisRanks::AllGather(ConstBuffer in, Buffer out) {
  if (ranks() == 1) return Copy(in, out);
  if (devices_ != nullptr) {
    GEMINID_RETURN_IF_ERROR(Drain(in));
    return devices_->AllGather(in, out);
  }
  return ThroughHost(in.count, in.dtype, ranks() + 1, [&](BufferSlice piece, std::byte* mine) {
    const size_t bytes = piece.count * SizeOf(in.dtype);
    std::byte* const all = mine + bytes;
    GEMINID_RETURN_IF_ERROR(Down(in, piece, mine));
    GEMINID_RETURN_IF_ERROR(ranks_.AllGather(ConstBuffer(mine, piece.count, in.dtype),
                                             Buffer(all, ranks() * piece.count, in.dtype)));
    for (size_t rank = 0; rank < ranks(); ++rank) {
      GEMINID_RETURN_IF_ERROR(
          Up(all + rank * bytes, out, {rank * in.count + piece.at, piece.count}));
    }
    return absl::OkStatus();
  });
}

absl::Status GpuAxisRanks::ReduceScatter(ConstBuffer in, Buffer out) {
  if (ranks() == 1) return Copy(in, out);
  if (devices_ != nullptr) {
    GEMINID_RETURN_IF_ERROR(Drain(in));
    return devices_->ReduceScatter(in, out);
  }
  return ThroughHost(out.count, out.dtype, ranks() + 1, [&](BufferSlice piece, std::byte* mine) {
    const size_t bytes = piece.count * SizeOf(out.dtype);
    std::byte* const all = mine + bytes;
    for (size_t rank = 0; rank < ranks(); ++rank) {
      GEMINID_RETURN_IF_ERROR(
          Down(in, {rank * out.count + piece.at, piece.count}, all + rank * bytes));
    }
    GEMINID_RETURN_IF_ERROR(ranks_.ReduceScatter(ConstBuffer(all, ranks() * piece.count, in.dtype),
                                                 Buffer(mine, piece.count, out.dtype)));
    return Up(mine, out, piece);
  });
}

absl::Status GpuAxisRanks::Reduce(ConstBuffer in, Buffer out, int root) {
  if (ranks() == 1) return Copy(in, out);
  const bool gets = Rank() == root;
  if (devices_ != nullptr) {
    GEMINID_RETURN_IF_ERROR(Drain(in));
    const size_t most = std::max<size_t>(1, kDeviceBytes / (ranks() * SizeOf(in.dtype)));
    return InPieces(in.count, most, [&](BufferSlice piece) {
      return devices_->Reduce(Of(in, piece.at, piece.count),
                              gets ? Of(out, piece.at, piece.count) : Buffer(), root);
    });
  }
  return ThroughHost(in.count, in.dtype, ranks() + 1, [&](BufferSlice piece, std::byte* host) {
    GEMINID_RETURN_IF_ERROR(Down(in, piece, host));
    const Buffer some(host, piece.count, in.dtype);
    GEMINID_RETURN_IF_ERROR(ranks_.Reduce(some, gets ? some : Buffer(), root));
    return gets ? Up(host, out, piece) : absl::OkStatus();
  });
}

absl::Status GpuAxisRanks::AllReduce(ConstBuffer in, Buffer out, ReduceOp op) {
  if (ranks() == 1) return Copy(in, out);
  if (devices_ != nullptr) {
    GEMINID_RETURN_IF_ERROR(Drain(in));
    return InPieces(in.count, kDeviceBytes / SizeOf(in.dtype), [&](BufferSlice piece) {
      return devices_->AllReduce(Of(in, piece.at, piece.count), Of(out, piece.at, piece.count), op);
    });
  }
  return ThroughHost(in.count, in.dtype, /*copies=*/1, [&](BufferSlice piece, std::byte* host) {
    GEMINID_RETURN_IF_ERROR(Down(in, piece, host));
    const Buffer some(host, piece.count, in.dtype);
    GEMINID_RETURN_IF_ERROR(ranks_.AllReduce(some, some, op));
    return Up(host, out, piece);
  });
}

absl::Status GpuAxisRanks::Broadcast(ConstBuffer own, Buffer out, int root) {
  const bool gives = Rank() == root;
  if (gives) GEMINID_RETURN_IF_ERROR(Copy(own, out));
  if (ranks() == 1) return absl::OkStatus();
  if (devices_ != nullptr) {
    GEMINID_RETURN_IF_ERROR(Drain(out));
    return devices_->Broadcast(out, root);
  }
  return ThroughHost(out.count, out.dtype, /*copies=*/1, [&](BufferSlice piece, std::byte* host) {
    if (gives) GEMINID_RETURN_IF_ERROR(Down(own, piece, host));
    GEMINID_RETURN_IF_ERROR(ranks_.Broadcast(Buffer(host, piece.count, out.dtype), root));
    return gives ? absl::OkStatus() : Up(host, out, piece);
  });
}

absl::Status GpuAxisRanks::Exchange(ConstBuffer mine, Buffer theirs, int peer) {
  if (peer == Rank()) return Copy(mine, theirs);
  return SendReceive(mine, peer, theirs, peer);
}

absl::Status GpuAxisRanks::SendReceive(ConstBuffer mine, int to, Buffer theirs, int from) {
  if (devices_ != nullptr) {
    GEMINID_RETURN_IF_ERROR(Drain(mine));
    return devices_->SendReceive(mine, to, theirs, from);
  }
  return ThroughHost(mine.count, mine.dtype, /*copies=*/2, [&](BufferSlice piece, std::byte* host) {
    std::byte* const came = host + piece.count * SizeOf(mine.dtype);
    GEMINID_RETURN_IF_ERROR(Down(mine, piece, host));
    GEMINID_RETURN_IF_ERROR(ranks_.SendReceive(ConstBuffer(host, piece.count, mine.dtype), to,
                                               Buffer(came, piece.count, theirs.dtype), from));
    return Up(came, theirs, piece);
  });
}

void GpuAxisRanks::Abort(const std::string& reason) {
  ranks_.Abort(reason);
  if (devices_ != nullptr) devices_->Abort(reason);
}

}  // namespace geminid::trainer
