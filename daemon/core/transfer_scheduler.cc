#include "daemon/core/transfer_scheduler.h"

#include <algorithm>
#include <tuple>

namespace geminid::core {
namespace {

constexpr uint32_t kMostTicketsPerDirection = shm::kMaxTicketsInFlight / kDirections;

Direction DirectionAt(int index) {
  return index == 0 ? Direction::kHostToDevice : Direction::kDeviceToHost;
}

}  // namespace

struct TransferScheduler::Waiting {
  TransferRequest request;
  Time since;
  uint64_t arrival = 0;
};

struct TransferScheduler::Session {
  DeviceIndex device{};
  Link* link = nullptr;  // the device's
  uint32_t weight = 1;
  uint16_t moment = 0;
  uint64_t queued = 0;
  // By destination, in order of arrival: only the first of each may be granted. No empty queues.
  std::map<ChunkId, std::deque<Waiting>> queues;
  std::array<InFlight, kDirections> flight{};
  std::array<uint64_t, kDirections> queued_by_direction{};
  std::array<double, kDirections> virtual_time{};  // bytes granted per weight
  std::map<TicketId, Ticket> tickets;
  std::vector<uint16_t> free_indices;
  uint32_t overdue = 0;
  TransferTotals totals;
};

TransferScheduler::TransferScheduler(const TransferLimits& limits, uint32_t devices)
    : limits_(limits), links_(std::max<uint32_t>(devices, 1)) {
  limits_.tickets_in_flight =
      std::clamp<uint32_t>(limits.tickets_in_flight, 1, kMostTicketsPerDirection);
  limits_.bytes_in_flight = std::max<uint64_t>(limits.bytes_in_flight, 1);
  limits_.ageing = std::max(limits.ageing, Duration::Nanoseconds(1));
}

TransferScheduler::~TransferScheduler() = default;

TransferScheduler::Session* TransferScheduler::FindSession(SessionId session) const {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second.get();
}

void TransferScheduler::AddSession(SessionId session, DeviceIndex device, uint32_t weight) {
  auto added = std::make_unique<Session>();
  added->device = device;
  added->link = &links_[shm::Value(device)];
  added->weight = std::max<uint32_t>(weight, 1);
  for (uint16_t i = shm::kMaxTicketsInFlight; i-- > 0;) added->free_indices.push_back(i);
  sessions_.emplace(session, std::move(added));
}

std::vector<TransferRequest> TransferScheduler::RemoveSession(SessionId id) {
  std::vector<TransferRequest> forgotten;
  Session* session = FindSession(id);
  if (session == nullptr) return forgotten;
  for (const auto& [ticket_id, ticket] : session->tickets) {
    InFlight& link = session->link->flight[Index(ticket.request.direction)];
    link.tickets -= 1;
    link.bytes -= ticket.request.bytes;
    forgotten.push_back(ticket.request);
  }
  for (const auto& [destination, queue] : session->queues) {
    for (const Waiting& waiting : queue) forgotten.push_back(waiting.request);
  }
  sessions_.erase(id);
  return forgotten;
}

void TransferScheduler::SetMoment(SessionId id, uint16_t moment) {
  if (Session* session = FindSession(id); session != nullptr) session->moment = moment;
}

bool TransferScheduler::Enqueue(SessionId id, const TransferRequest& request, Time now) {
  Session* session = FindSession(id);
  if (session == nullptr || session->queued >= limits_.queued_per_session) return false;
  const int direction = Index(request.direction);
  if (session->queued_by_direction[direction] == 0) {
    // A session that was idle has saved up no credit.
    session->virtual_time[direction] =
        std::max(session->virtual_time[direction], session->link->virtual_time[direction]);
  }
  session->queues[request.destination].push_back({request, now, next_arrival_++});
  session->queued += 1;
  session->queued_by_direction[direction] += 1;
  return true;
}

const TransferScheduler::Waiting* TransferScheduler::Best(const Session& session,
                                                          Direction direction, Time now) const {
  const Waiting* best = nullptr;
  std::tuple<int64_t, uint32_t, uint64_t> best_key;
  for (const auto& [destination, queue] : session.queues) {
    const Waiting& head = queue.front();
    if (head.request.direction != direction) continue;
    const int64_t level =
        static_cast<int64_t>(head.request.priority) - (now - head.since) / limits_.ageing;
    // Moments wrap around: one that lies behind belongs to the next iteration.
    const uint32_t distance =
        head.request.deadline_moment == kNoDeadline
            ? uint32_t{kNoDeadline} + 1
            : static_cast<uint16_t>(head.request.deadline_moment - session.moment);
    const auto key = std::make_tuple(level, distance, head.arrival);
    if (best != nullptr && key >= best_key) continue;
    best = &head;
    best_key = key;
  }
  return best;
}

bool TransferScheduler::Fits(const InFlight& flight, uint64_t bytes, uint64_t limit_bytes) {
  if (flight.tickets == 0) return true;
  return flight.bytes <= limit_bytes && bytes <= limit_bytes - flight.bytes;
}

// The device's backlogged session of the least virtual time that its own limits let start
// something.
TransferScheduler::Candidate TransferScheduler::Next(DeviceIndex device, Direction direction,
                                                     Time now) const {
  const int index = Index(direction);
  Candidate next;
  for (const auto& [id, session] : sessions_) {
    const InFlight& flight = session->flight[index];
    if (session->device != device || session->queued_by_direction[index] == 0) continue;
    if (flight.tickets >= limits_.tickets_in_flight) continue;
    if (next.session != nullptr &&
        session->virtual_time[index] >= next.session->virtual_time[index]) {
      continue;
    }
    const Waiting* best = Best(*session, direction, now);
    if (best == nullptr || !Fits(flight, best->request.bytes, limits_.bytes_in_flight)) continue;
    next = {id, session.get(), best};
  }
  return next;
}

Ticket TransferScheduler::Start(SessionId id, Session* session, const Waiting& chosen, Time now) {
  Ticket ticket{.session = id,
                .id = TicketId{next_ticket_++},
                .completion_index = session->free_indices.back(),
                .granted_at = now,
                .request = chosen.request};
  session->free_indices.pop_back();
  const auto queue = session->queues.find(ticket.request.destination);
  queue->second.pop_front();  // `chosen` is gone
  if (queue->second.empty()) session->queues.erase(queue);
  const int direction = Index(ticket.request.direction);
  session->queued -= 1;
  session->queued_by_direction[direction] -= 1;
  for (InFlight* flight : {&session->flight[direction], &session->link->flight[direction]}) {
    flight->tickets += 1;
    flight->bytes += ticket.request.bytes;
  }
  double& link_time = session->link->virtual_time[direction];
  link_time = std::max(link_time, session->virtual_time[direction]);
  session->virtual_time[direction] +=
      static_cast<double>(ticket.request.bytes) / static_cast<double>(session->weight);
  session->tickets.emplace(ticket.id, ticket);
  return ticket;
}

void TransferScheduler::GrantOnLink(DeviceIndex device, Direction direction, Time now,
                                    std::vector<Ticket>* granted) {
  for (;;) {
    const Candidate next = Next(device, direction, now);
    if (next.session == nullptr) return;
    // Whoever is next waits for room on the link; others must not take it meanwhile.
    const bool link_is_shared = limits_.link_bytes_in_flight > 0;
    if (link_is_shared && !Fits(LinkOf(device).flight[Index(direction)],
                                next.waiting->request.bytes, limits_.link_bytes_in_flight)) {
      return;
    }
    granted->push_back(Start(next.id, next.session, *next.waiting, now));
  }
}

std::vector<Ticket> TransferScheduler::Grant(Time now) {
  std::vector<Ticket> granted;
  for (uint32_t device = 0; device < links_.size(); ++device) {
    for (int i = 0; i < kDirections; ++i) {
      GrantOnLink(DeviceIndex{device}, DirectionAt(i), now, &granted);
    }
  }
  return granted;
}

const Ticket* TransferScheduler::Find(SessionId id, TicketId ticket) const {
  const Session* session = FindSession(id);
  if (session == nullptr) return nullptr;
  const auto found = session->tickets.find(ticket);
  return found == session->tickets.end() ? nullptr : &found->second;
}

bool TransferScheduler::Complete(SessionId id, TicketId ticket) {
  Session* session = FindSession(id);
  if (session == nullptr) return false;
  const auto found = session->tickets.find(ticket);
  if (found == session->tickets.end()) return false;
  const TransferRequest& request = found->second.request;
  const int direction = Index(request.direction);
  for (InFlight* flight : {&session->flight[direction], &session->link->flight[direction]}) {
    flight->tickets -= 1;
    flight->bytes -= request.bytes;
  }
  for (TransferTotals* totals : {&session->totals, &session->link->totals}) {
    TransferCount& count = totals->At(request.direction, request.cause);
    count.bytes += request.bytes;
    count.transfers += 1;
  }
  if (found->second.overdue) session->overdue -= 1;
  session->free_indices.push_back(found->second.completion_index);
  session->tickets.erase(found);
  return true;
}

uint64_t TransferScheduler::MarkOverdue(Time now) {
  uint64_t marked = 0;
  for (const auto& [id, session] : sessions_) {
    for (auto& [ticket_id, ticket] : session->tickets) {
      if (ticket.overdue || now - ticket.granted_at < limits_.ticket_timeout) continue;
      ticket.overdue = true;
      session->overdue += 1;
      session->link->overdue_tickets += 1;
      marked += 1;
    }
  }
  return marked;
}

std::optional<Time> TransferScheduler::NextTimeout() const {
  std::optional<Time> next;
  for (const auto& [id, session] : sessions_) {
    for (const auto& [ticket_id, ticket] : session->tickets) {
      if (ticket.overdue) continue;
      const Time due = ticket.granted_at + limits_.ticket_timeout;
      if (!next.has_value() || due < *next) next = due;
    }
  }
  return next;
}

bool TransferScheduler::IsSlow(SessionId id) const {
  const Session* session = FindSession(id);
  return session != nullptr && session->overdue > 0;
}

InFlight TransferScheduler::FlightOf(SessionId id, Direction direction) const {
  const Session* session = FindSession(id);
  return session == nullptr ? InFlight{} : session->flight[Index(direction)];
}

InFlight TransferScheduler::FlightOf(DeviceIndex device, Direction direction) const {
  return shm::Value(device) < links_.size() ? LinkOf(device).flight[Index(direction)] : InFlight{};
}

TransferTotals TransferScheduler::TotalsOf(DeviceIndex device) const {
  return shm::Value(device) < links_.size() ? LinkOf(device).totals : TransferTotals{};
}

uint64_t TransferScheduler::OverdueTickets(DeviceIndex device) const {
  return shm::Value(device) < links_.size() ? LinkOf(device).overdue_tickets : 0;
}

uint64_t TransferScheduler::QueuedCount(SessionId id) const {
  const Session* session = FindSession(id);
  return session == nullptr ? 0 : session->queued;
}

TransferTotals TransferScheduler::TotalsOf(SessionId id) const {
  const Session* session = FindSession(id);
  return session == nullptr ? TransferTotals{} : session->totals;
}

}  // namespace geminid::core
