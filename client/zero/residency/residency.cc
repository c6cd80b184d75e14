#include "client/zero/residency/residency.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/src/session_internal.h"
#include "client/zero/core/extent.h"
#include "client/zero/core/shortage.h"

namespace geminid::zero {
namespace {

std::vector<uint64_t> ExtentBytes(const Layout& layout, const std::vector<uint32_t>& owners) {
  std::vector<uint64_t> bytes;
  for (uint32_t owner : owners) bytes.push_back(RoundUpToExtent(layout.chunks[owner].bytes()));
  return bytes;
}

}  // namespace

Residency::Residency(const EngineSetup& setup, const Director& director,
                     const std::vector<uint32_t>& owners, Calls calls)
    : setup_(setup),
      director_(director),
      owners_(owners),
      calls_(std::move(calls)),
      placer_(setup.session->arena_bytes(), kExtentAlignmentBytes,
              ExtentBytes(setup.layout, owners),
              [this](uint32_t chunk) {
                return setup_.communicator->WorldSize() == 1 && director_.CanGatherAgain(chunk);
              }),
      workspace_(setup.session->arena(), setup.session->arena_bytes(), &meter_, calls_.grow,
                 calls_.holes) {}

absl::Status Residency::Start(MoverContext context) {
  context.setup = &setup_;
  context.owners = &owners_;
  context.meter = &meter_;
  const int micro_batches = setup_.options.accumulate;
  context.accumulate = setup_.sums_gradients() ? 1 : micro_batches;
  context.summed = setup_.sums_gradients() ? micro_batches : 1;
  GEMINID_ASSIGN_OR_RETURN(compute_,
                           Compute::CreateForCaller(DeviceOf(*setup_.session), "geminid-engine",
                                                    setup_.options.timeout));
  GEMINID_ASSIGN_OR_RETURN(mover_, Mover::Create(std::move(context)));
  return absl::OkStatus();
}

bool Residency::Stop() {
  activations_.reset();
  saved_.reset();
  const bool passed = mover_ == nullptr || mover_->StreamsPassed();
  if (mover_ != nullptr) {
    const std::vector<ChunkId> buffers = mover_->buffers();
    left_.insert(left_.end(), buffers.begin(), buffers.end());
  }
  mover_.reset();
  for (const auto& [number, block] : hole_blocks_) left_.push_back(block.chunk);
  hole_blocks_.clear();
  return passed;
}

void Residency::SetStateBytes(uint64_t bytes) {
  meter_.AddModel(static_cast<int64_t>(bytes) - static_cast<int64_t>(placer_.floor_bytes()));
  placer_.SetFloor(bytes);
}

void Residency::BeginOperator(uint64_t moment, Stream* stream) {
  ++operation_;
  BeginMoment(moment, stream);
}

void Residency::BeginMoment(uint64_t moment, Stream* stream) {
  moment_ = static_cast<uint32_t>(moment);
  mover_->BeginMoment(moment, stream);
}

// --- places --------------------------------------------------------------------------------------

// After a failed move, chunks may still lie where the reservation would be.
void Residency::GrantReserved() {
  if (mover_->status().ok()) workspace_.SetReserved(placer_.reserved_bytes());
}

absl::Status Residency::CheckFits(const std::vector<uint32_t>& chunks,
                                  uint64_t workspace_bytes) const {
  if (placer_.Fits(chunks, workspace_bytes, Held())) return absl::OkStatus();
  const auto needed = [&](uint32_t chunk) {
    return director_.holders(chunk) > 0 || std::ranges::binary_search(chunks, chunk);
  };
  return DoesNotFit(needed, workspace_bytes);
}

absl::Status Residency::Run(const Steps& steps, MicroBatchPosition position) {
  return calls_.fail(mover_->Run(steps, {operation_, moment_, position}));
}

absl::Status Residency::RunAll(const absl::StatusOr<Steps>& steps, const Placer::IsHeld& needed,
                               uint64_t workspace_bytes) {
  return steps.ok() ? Run(*steps) : DoesNotFit(needed, workspace_bytes);
}

absl::Status Residency::Move(const Moves& moves, MicroBatchPosition position) {
  return moves.empty() ? absl::OkStatus() : Run(placer_.Place(moves), position);
}

absl::Status Residency::MoveWithRoom(const Moves& moves, const Room& room) {
  const auto loads = LoadsOf(moves);
  GEMINID_RETURN_IF_ERROR(Move(Moves(moves.begin(), loads)));
  const auto is_needed = [&](uint32_t chunk) {
    return std::ranges::binary_search(room.chunks, chunk);
  };
  const Placer::IsHeld held = [&](uint32_t chunk) {
    return director_.holders(chunk) > (room.held_already && is_needed(chunk) ? 1 : 0);
  };
  GEMINID_RETURN_IF_ERROR(RunAll(placer_.Reserve(room.workspace_bytes, room.wanted_bytes, held),
                                 held, room.workspace_bytes));
  setup_.session->SetWorkspace(workspace_.in_use_bytes());
  if (room.enough_bytes > 0) {
    absl::Status taken;
    const auto stores = [&](std::span<const uint32_t> chunks) {
      const absl::StatusOr<bool> all = mover_->TakeBuffers(chunks);
      taken = all.status();
      return all.ok() && *all;
    };
    const Steps steps = placer_.MakeWay(room.chunks, room.enough_bytes, held, stores);
    GEMINID_RETURN_IF_ERROR(calls_.fail(taken));
    GEMINID_RETURN_IF_ERROR(Run(steps));
  }
  GEMINID_RETURN_IF_ERROR(Move(Moves(loads, moves.end())));
  const auto needed = [&](uint32_t chunk) { return held(chunk) || is_needed(chunk); };
  return RunAll(placer_.Load(room.chunks, held), needed, room.workspace_bytes);
}

absl::Status Residency::GiveWorkspaceUp() {
  return RunAll(placer_.Reserve(0, 0, Held()), Held(), 0);
}

std::byte* Residency::Address(uint32_t chunk, uint32_t tensor) const {
  const TensorPlace& place = setup_.layout.tensors[tensor];
  std::byte* const begin = setup_.views.empty()
                               ? setup_.session->arena() + placer_.offset(chunk)
                               : DeviceOf(*setup_.session)->views() + setup_.views[chunk];
  return begin + place.offset * setup_.layout.chunks[place.chunk].element_bytes();
}

absl::Status Residency::WaitResident(const std::vector<uint32_t>& chunks) {
  for (uint32_t chunk : chunks) GEMINID_RETURN_IF_ERROR(mover_->WaitResident(chunk));
  return absl::OkStatus();
}

absl::Status Residency::Hold(const std::vector<uint32_t>& chunks, Stream* stream) {
  for (uint32_t chunk : chunks) {
    GEMINID_RETURN_IF_ERROR(mover_->Hold(chunk));
    if (stream != nullptr) GEMINID_RETURN_IF_ERROR(mover_->WaitOn(stream, chunk));
  }
  return absl::OkStatus();
}

absl::Status Residency::DoesNotFit(const Placer::IsHeld& needed, uint64_t workspace_bytes) const {
  uint64_t chunk_bytes = 0;
  std::set<uint32_t> tensors;
  for (uint32_t chunk = 0; chunk < owners_.size(); ++chunk) {
    if (!needed(chunk)) continue;
    const ChunkShape& shape = setup_.layout.chunks[owners_[chunk]];
    chunk_bytes += RoundUpToExtent(shape.bytes());
    tensors.insert(shape.tensors.begin(), shape.tensors.end());
  }
  std::string names;
  if (!tensors.empty()) names = absl::StrCat("'", setup_.parameters[*tensors.begin()].name, "'");
  if (tensors.size() > 1) absl::StrAppend(&names, " and ", tensors.size() - 1, " more");
  return absl::ResourceExhaustedError(Describe({.operation = operation_,
                                                .parameters = names,
                                                .chunk_bytes = chunk_bytes,
                                                .activation_bytes = workspace_bytes,
                                                .state_bytes = placer_.floor_bytes(),
                                                .arena_bytes = setup_.session->arena_bytes()}));
}

// --- workspace beyond the reservation -----------------------------------------------------------

absl::Status Residency::Grow(uint64_t extent_bytes) {
  const PlacementScope placing(this);
  const uint64_t bytes = std::max(extent_bytes, placing.workspace_bytes());
  return RunAll(placer_.Reserve(bytes, placer_.reserved_bytes(), Held()), Held(), extent_bytes);
}

absl::StatusOr<std::byte*> Residency::AllocateInHole(uint64_t bytes) {
  uint32_t number = 0;
  while (hole_blocks_.contains(number)) ++number;
  const absl::StatusOr<Placer::Block> place = placer_.PlaceBlock(number, bytes, Held());
  if (!place.ok()) return DoesNotFit(Held(), workspace_.in_use_bytes() + bytes);
  GEMINID_RETURN_IF_ERROR(Run(place->steps));
  HoleBlock block;
  block.extent_bytes = RoundUpToExtent(bytes);
  if (const absl::Status published = PublishBlock(place->offset, &block); !published.ok()) {
    if (block.chunk != kNoChunk) left_.push_back(block.chunk);
    return calls_.fail(published);
  }
  return hole_blocks_.emplace(number, std::move(block)).first->second.data;
}

absl::Status Residency::PublishBlock(uint64_t offset, HoleBlock* block) {
  Session& session = *setup_.session;
  const absl::Duration timeout = setup_.options.timeout;
  GEMINID_RETURN_IF_ERROR(mover_->WaitClear(offset, offset + block->extent_bytes));
  GEMINID_ASSIGN_OR_RETURN(const std::vector<ChunkHandle> chunk,
                           session.Allocate({{"workspace", ChunkKind::kGeneric, block->extent_bytes,
                                              /*has_home=*/false}}));
  block->chunk = chunk.front().id;
  GEMINID_RETURN_IF_ERROR(
      session.AllocateExtent(block->chunk, offset, /*may_evict=*/true).Wait(timeout));
  GEMINID_RETURN_IF_ERROR(session.Publish(block->chunk).Wait(timeout));
  block->lease = session.TryLease(block->chunk);
  block->data = session.arena() + offset;
  return absl::OkStatus();
}

void Residency::FreeInHole(std::byte* data) {
  const auto at = std::ranges::find_if(
      hole_blocks_, [data](const auto& block) { return block.second.data == data; });
  if (at == hole_blocks_.end()) return;
  HoleBlock& block = at->second;
  block.lease.reset();
  absl::Status status = setup_.session->Drop(block.chunk).Wait(setup_.options.timeout);
  if (status.ok()) status = setup_.session->Free(std::vector<ChunkId>{block.chunk});
  const auto begin = static_cast<uint64_t>(data - setup_.session->arena());
  mover_->CloseUntilStreamsPass(begin, begin + block.extent_bytes);
  placer_.FreeBlock(at->first);
  hole_blocks_.erase(at);
  (void)calls_.fail(status);
}

}  // namespace geminid::zero
