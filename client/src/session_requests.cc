#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "client/src/session_impl.h"
#include "client/src/wire.h"
#include "proto/shm/chunk_state.h"

namespace geminid {
Pending SessionImpl::Ask(const shm::Request& request, std::string doing) {
  if (absl::Status usable = CheckUsable(); !usable.ok()) return Pending(std::move(usable));
  auto outcome = std::make_shared<Pending::State>(port.get());
  port->Submit(request, [outcome, doing = std::move(doing),
                         memory = device->memory_info()](const Answer& answer) {
    outcome->Complete(answer.status.ok() ? answer.status : Explain(answer.status, doing, memory));
  });
  return Pending(std::move(outcome));
}

Pending Session::Transfer(const TransferSpec& spec) {
  if (absl::Status usable = impl_->CheckUsable(); !usable.ok()) return Pending(std::move(usable));
  if (OnDemandLoader::IsLoad(spec, Bytes(spec.source))) return impl_->on_demand_loader->Load(spec);
  return impl_->transfers->Start(spec);
}

Pending Session::AllocateExtent(ChunkId chunk, uint64_t device_offset, bool may_evict) {
  shm::Request request = MakeRequest(shm::RequestOp::kAllocateExtent, chunk);
  request.device_offset = device_offset;
  if (may_evict) request.flags |= shm::kMayEvict;
  return impl_->Ask(
      request, absl::StrCat("giving chunk ", Index(chunk), " of ", base::FormatBytes(Bytes(chunk)),
                            " a place on the device"));
}

Pending Session::Publish(ChunkId chunk) {
  return impl_->Ask(MakeRequest(shm::RequestOp::kPublish, chunk),
                    absl::StrCat("publishing chunk ", Index(chunk)));
}

Pending Session::Drop(ChunkId chunk) {
  return impl_->Ask(MakeRequest(shm::RequestOp::kDrop, chunk),
                    absl::StrCat("dropping chunk ", Index(chunk)));
}

Pending Session::Transition(ChunkId chunk, ChunkState to, bool dirty) {
  shm::Request request = MakeRequest(shm::RequestOp::kTransition, chunk);
  request.argument = static_cast<uint64_t>(to) | (dirty ? shm::kDirtyBit : 0);
  return impl_->Ask(request, absl::StrCat("changing the state of chunk ", Index(chunk), " to ",
                                          shm::Name(static_cast<shm::ChunkState>(to))));
}

Pending Session::ReserveWorkspace(uint64_t bytes, bool may_evict) {
  shm::Request request = MakeRequest(shm::RequestOp::kReserveWorkspace);
  request.bytes = bytes;
  if (may_evict) request.flags |= shm::kMayEvict;
  return impl_->Ask(request, absl::StrCat("reserving a workspace of ", base::FormatBytes(bytes)));
}

void Session::BeginMoment(uint64_t moment) {
  if (impl_->fork_guard->in_child()) return;
  impl_->segments.client()->counters.moment.store(moment, std::memory_order_relaxed);
  shm::Request request = MakeRequest(shm::RequestOp::kBeginMoment);
  request.argument = moment;
  // Deadlines of transfers use the moment; they begin with the next request.
  impl_->port->PostWithNext(request);
}

Pending Session::WriteBack(ChunkId chunk) {
  if (absl::Status usable = impl_->CheckUsable(); !usable.ok()) return Pending(std::move(usable));
  return impl_->on_demand_loader->WriteBack(chunk);
}

}  // namespace geminid
