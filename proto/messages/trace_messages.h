// Converts traces between their message and plain values. Only this file knows both.
//
// The client's public types and the planner's differ, because neither side may include the other.
// Both are aggregates with the fields of v1.Trace and its parts, in the same order. A field too
// many or too few does not compile; a test on each side names all of them.
#ifndef GEMINID_PROTO_MESSAGES_TRACE_MESSAGES_H_
#define GEMINID_PROTO_MESSAGES_TRACE_MESSAGES_H_

#include <cstdint>

#include "geminid/v1/trace.pb.h"

namespace geminid::messages {

// Version of v1.TraceFile: the one that is written, and the only one that can be read.
inline constexpr uint32_t kTraceFileVersion = 1;

template <typename LinkModel>
void FillLink(const LinkModel& link, v1::LinkModel* message) {
  const auto& [h2d_bytes_per_second, d2h_bytes_per_second, latency_seconds, both_directions_share,
               uplink_bytes_per_second, ranks_per_uplink] = link;
  message->set_host_to_device_bytes_per_second(h2d_bytes_per_second);
  message->set_device_to_host_bytes_per_second(d2h_bytes_per_second);
  message->set_latency_seconds(latency_seconds);
  message->set_both_directions_share(both_directions_share);
  message->set_uplink_bytes_per_second(uplink_bytes_per_second);
  message->set_ranks_per_uplink(ranks_per_uplink);
}

template <typename Trace>
v1::Trace TraceToMessage(const Trace& trace) {
  const auto& [arena_bytes, chunks, moments, link] = trace;
  v1::Trace message;
  message.set_arena_bytes(arena_bytes);
  for (const auto& [id, device_bytes, transfer_bytes, gradient_bytes, frozen] : chunks) {
    v1::TraceChunk* to = message.add_chunks();
    to->set_chunk(static_cast<uint32_t>(id));
    to->set_device_bytes(device_bytes);
    to->set_transfer_bytes(transfer_bytes);
    to->set_gradient_bytes(gradient_bytes);
    to->set_frozen(frozen);
  }
  for (const auto& [uses, workspace_bytes, compute_seconds] : moments) {
    v1::TraceMoment* to = message.add_moments();
    for (const auto& [index, invalidates] : uses) {
      v1::TraceUse* use = to->add_uses();
      use->set_index(index);
      use->set_invalidates(invalidates);
    }
    to->set_workspace_bytes(workspace_bytes);
    to->set_compute_seconds(compute_seconds);
  }
  FillLink(link, message.mutable_link());
  return message;
}

// Of a link's sharing numbers, 0 means 1: a link that this rank has for itself.
template <typename Trace>
Trace TraceFromMessage(const v1::Trace& message) {
  const v1::LinkModel& link = message.link();
  Trace trace = {
      message.arena_bytes(),
      {},
      {},
      {link.host_to_device_bytes_per_second(), link.device_to_host_bytes_per_second(),
       link.latency_seconds(), link.both_directions_share() != 0 ? link.both_directions_share() : 1,
       link.uplink_bytes_per_second(), link.ranks_per_uplink() != 0 ? link.ranks_per_uplink() : 1}};
  for (const v1::TraceChunk& chunk : message.chunks()) {
    trace.chunks.push_back({chunk.chunk(), chunk.device_bytes(), chunk.transfer_bytes(),
                            chunk.gradient_bytes(), chunk.frozen()});
  }
  for (const v1::TraceMoment& from : message.moments()) {
    auto& moment = trace.moments.emplace_back();
    for (const v1::TraceUse& use : from.uses()) {
      moment.uses.push_back({use.index(), use.invalidates()});
    }
    moment.workspace_bytes = from.workspace_bytes();
    moment.compute_seconds = from.compute_seconds();
  }
  return trace;
}

}  // namespace geminid::messages

#endif  // GEMINID_PROTO_MESSAGES_TRACE_MESSAGES_H_
