#include "daemon/core/transfers/transfer_scheduler.h"

#include <algorithm>
#include <compare>
#include <utility>

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

// The first waiting request of one destination, in the order of `level`. Within one level,
// deadlines come in the order of moments, and requests without a deadline come last.
struct TransferScheduler::Head {
  int64_t level = 0;
  uint32_t deadline_moment = 0;
  uint64_t arrival = 0;
  ChunkId destination{};
  auto operator<=>(const Head&) const = default;
};

// A session's requests of one direction.
struct TransferScheduler::Lane {
  uint64_t queued = 0;
  std::set<Head> heads;
  InFlight flight;
  double virtual_time = 0;        // bytes granted per weight
  std::optional<double> turn_at;  // its key in the link's `ready`; none: it is not in there
};

struct TransferScheduler::Session {
  DeviceIndex device{};
  Link* link = nullptr;  // the device's
  Tenant* tenant = nullptr;
  double weight = 1;
  uint16_t moment = 0;
  uint64_t queued = 0;
  // By destination, in order of arrival: only the first of each may be granted. No empty queues.
  std::map<ChunkId, std::deque<Waiting>> queues;
  std::array<Lane, kDirections> lanes{};
  std::map<TicketId, Ticket> tickets;
  std::vector<uint16_t> free_indices;
  uint32_t overdue = 0;
  uint32_t late = 0;
  TransferTotals totals;
};

void TransferScheduler::Link::Line::Begin(const Ticket& ticket, Time now) {
  if (reading.flight.tickets == 0) busy_since = now;
  reading.flight.tickets += 1;
  reading.flight.bytes += ticket.request.bytes;
  if (!ticket.fills_link) return;
  filled.tickets += 1;
  filled.bytes += ticket.request.bytes;
}

void TransferScheduler::Link::Line::Unfill(const Ticket& ticket) {
  if (!ticket.fills_link) return;
  filled.tickets -= 1;
  filled.bytes -= ticket.request.bytes;
}

void TransferScheduler::Link::Line::End(const Ticket& ticket, Time now) {
  Unfill(ticket);
  reading.flight.tickets -= 1;
  reading.flight.bytes -= ticket.request.bytes;
  if (reading.flight.tickets == 0) reading.busy = reading.busy + (now - busy_since);
}

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

void TransferScheduler::AddSession(SessionId session, DeviceIndex device, double weight,
                                   const std::string& tenant) {
  auto added = std::make_unique<Session>();
  added->device = device;
  added->link = &links_[shm::Value(device)];
  if (weight > 0) added->weight = weight;
  added->link->weight += added->weight;
  added->tenant = &tenants_[tenant];
  added->tenant->sessions += 1;
  for (uint16_t i = shm::kMaxTicketsInFlight; i-- > 0;) added->free_indices.push_back(i);
  sessions_.emplace(session, std::move(added));
}

void TransferScheduler::SetWeight(SessionId id, double weight) {
  Session* session = FindSession(id);
  if (session == nullptr || weight <= 0) return;
  session->link->weight += weight - session->weight;
  session->weight = weight;
}

std::vector<TransferRequest> TransferScheduler::RemoveSession(SessionId id, Time now) {
  std::vector<TransferRequest> forgotten;
  Session* session = FindSession(id);
  if (session == nullptr) return forgotten;
  for (const auto& [ticket_id, ticket] : session->tickets) {
    session->link->lines[Index(ticket.request.direction)].End(ticket, now);
    running_.erase({ticket.granted_at, ticket_id});
    forgotten.push_back(ticket.request);
  }
  for (int i = 0; i < kDirections; ++i) {
    const std::optional<double>& turn_at = session->lanes[i].turn_at;
    if (turn_at.has_value()) session->link->ready[i].erase({*turn_at, id});
  }
  for (const auto& [destination, queue] : session->queues) {
    for (const Waiting& waiting : queue) {
      LinkReading& line = session->link->lines[Index(waiting.request.direction)].reading;
      line.queued -= 1;
      line.queued_bytes -= waiting.request.bytes;
      forgotten.push_back(waiting.request);
    }
  }
  now_ = std::max(now_, now);
  if (session->late > 0) HoldToParts(session->tenant);
  session->link->weight -= session->weight;
  session->tenant->sessions -= 1;
  sessions_.erase(id);
  std::erase_if(tenants_, [this](const auto& tenant) {
    return tenant.second.sessions == 0 && tenant.second.in_parts_until <= now_;
  });
  return forgotten;
}

void TransferScheduler::SetMoment(SessionId id, uint16_t moment) {
  Session* session = FindSession(id);
  if (session == nullptr) return;
  session->moment = moment;
  for (int i = 0; i < kDirections; ++i) UpdateTurn(id, session, DirectionAt(i));
}

TransferScheduler::Head TransferScheduler::HeadOf(const Waiting& waiting) const {
  const int64_t age_begins = waiting.since.nanoseconds() / limits_.ageing.nanoseconds();
  return {.level = static_cast<int64_t>(waiting.request.priority) + age_begins,
          .deadline_moment = waiting.request.deadline_moment,
          .arrival = waiting.arrival,
          .destination = waiting.request.destination};
}

bool TransferScheduler::Enqueue(SessionId id, const TransferRequest& request, Time now) {
  Session* session = FindSession(id);
  if (session == nullptr || session->queued >= limits_.queued_per_session) return false;
  now_ = std::max(now_, now);
  const int direction = Index(request.direction);
  Lane& lane = session->lanes[direction];
  if (lane.queued == 0) {
    // An idle session has saved up no credit.
    lane.virtual_time = std::max(lane.virtual_time, session->link->virtual_time[direction]);
  }
  std::deque<Waiting>& queue = session->queues[request.destination];
  queue.push_back({request, now, next_arrival_++});
  if (queue.size() == 1) lane.heads.insert(HeadOf(queue.front()));
  session->queued += 1;
  lane.queued += 1;
  session->link->lines[direction].reading.queued += 1;
  session->link->lines[direction].reading.queued_bytes += request.bytes;
  UpdateTurn(id, session, request.direction);
  return true;
}

// Moments wrap around: a deadline in the past belongs to the next iteration.
const TransferScheduler::Waiting* TransferScheduler::Best(const Session& session,
                                                          Direction direction) {
  const std::set<Head>& heads = session.lanes[Index(direction)].heads;
  if (heads.empty()) return nullptr;
  const int64_t level = heads.begin()->level;
  auto best = heads.lower_bound({.level = level, .deadline_moment = session.moment});
  if (best == heads.end() || best->level != level || best->deadline_moment == kNoDeadline) {
    best = heads.begin();
  }
  return &session.queues.find(best->destination)->second.front();
}

bool TransferScheduler::Fits(const InFlight& flight, uint64_t bytes, uint64_t limit_bytes) {
  if (flight.tickets == 0) return true;
  return flight.bytes <= limit_bytes && bytes <= limit_bytes - flight.bytes;
}

bool TransferScheduler::HasTicketFor(const InFlight& flight, uint64_t bytes) const {
  if (flight.tickets < limits_.tickets_in_flight) return true;
  return flight.tickets < kMostTicketsPerDirection &&
         Fits(flight, bytes, limits_.small_bytes_in_flight);
}

void TransferScheduler::UpdateTurn(SessionId id, Session* session, Direction direction) {
  Lane& lane = session->lanes[Index(direction)];
  const Waiting* best = Best(*session, direction);
  const bool ready = best != nullptr && HasTicketFor(lane.flight, best->request.bytes) &&
                     Fits(lane.flight, best->request.bytes, limits_.bytes_in_flight) &&
                     FitsItsPart(*session, direction, best->request.bytes);
  if (lane.turn_at.has_value() == ready && (!ready || *lane.turn_at == lane.virtual_time)) return;
  std::set<GrantOrder>& turns = session->link->ready[Index(direction)];
  if (lane.turn_at.has_value()) turns.erase({*lane.turn_at, id});
  lane.turn_at.reset();
  if (!ready) return;
  turns.insert({lane.virtual_time, id});
  lane.turn_at = lane.virtual_time;
}

bool TransferScheduler::IsHeldToItsPart(const Session& session) const {
  return session.late > 0 || session.tenant->in_parts_until > now_;
}

void TransferScheduler::HoldToParts(Tenant* tenant) {
  tenant->in_parts_until = now_ + limits_.part_time;
}

// The bytes in flight may exceed the part: they were granted while nobody else wanted the link.
bool TransferScheduler::FitsItsPart(const Session& session, Direction direction,
                                    uint64_t bytes) const {
  if (limits_.link_bytes_in_flight == 0 || !IsHeldToItsPart(session)) return true;
  const double part = session.weight / session.link->weight;
  const double most = static_cast<double>(limits_.link_bytes_in_flight) * part;
  return Fits(session.lanes[Index(direction)].flight, bytes, static_cast<uint64_t>(most));
}

Ticket TransferScheduler::Start(SessionId id, Session* session, const Waiting& chosen) {
  Ticket ticket{.session = id,
                .id = TicketId{next_ticket_++},
                .completion_index = session->free_indices.back(),
                .granted_at = now_,
                .fills_link = !IsHeldToItsPart(*session),
                .request = chosen.request};
  session->free_indices.pop_back();
  const int direction = Index(ticket.request.direction);
  Lane& lane = session->lanes[direction];
  Link::Line& line = session->link->lines[direction];
  line.reading.waits.Add(now_ - chosen.since);
  const auto queue = session->queues.find(ticket.request.destination);
  lane.heads.erase(HeadOf(chosen));
  queue->second.pop_front();  // `chosen` is gone
  if (queue->second.empty()) {
    session->queues.erase(queue);
  } else {
    const Waiting& next = queue->second.front();
    session->lanes[Index(next.request.direction)].heads.insert(HeadOf(next));
  }
  session->queued -= 1;
  lane.queued -= 1;
  line.reading.queued -= 1;
  line.reading.queued_bytes -= ticket.request.bytes;
  lane.flight.tickets += 1;
  lane.flight.bytes += ticket.request.bytes;
  line.Begin(ticket, now_);
  double& link_time = session->link->virtual_time[direction];
  link_time = std::max(link_time, lane.virtual_time);
  lane.virtual_time += static_cast<double>(ticket.request.bytes) / session->weight;
  session->tickets.emplace(ticket.id, ticket);
  running_.emplace(std::pair(now_, ticket.id), id);
  for (int i = 0; i < kDirections; ++i) UpdateTurn(id, session, DirectionAt(i));
  return ticket;
}

bool TransferScheduler::Restore(const Ticket& ticket, Time now) {
  Session* session = FindSession(ticket.session);
  if (session == nullptr || std::erase(session->free_indices, ticket.completion_index) != 1) {
    return false;
  }
  const int direction = Index(ticket.request.direction);
  session->lanes[direction].flight.tickets += 1;
  session->lanes[direction].flight.bytes += ticket.request.bytes;
  session->link->lines[direction].Begin(ticket, now);
  session->tickets.emplace(ticket.id, ticket);
  running_.emplace(std::pair(ticket.granted_at, ticket.id), ticket.session);
  late_until_ = std::min(late_until_, {ticket.granted_at, TicketId{}});
  UpdateTurn(ticket.session, session, ticket.request.direction);
  return true;
}

bool TransferScheduler::MarkLate(Time now) {
  now_ = std::max(now_, now);
  bool freed = false;
  for (auto next = running_.upper_bound(late_until_);
       next != running_.end() && now_ - next->first.first >= limits_.link_patience; ++next) {
    late_until_ = next->first;
    Session* session = FindSession(next->second);
    Ticket& ticket = session->tickets.find(next->first.second)->second;
    if (std::exchange(ticket.late, true)) continue;
    session->late += 1;
    HoldToParts(session->tenant);
    session->link->lines[Index(ticket.request.direction)].Unfill(ticket);
    freed = std::exchange(ticket.fills_link, false) || freed;
  }
  return freed;
}

void TransferScheduler::GrantOnLink(Link* link, Direction direction, std::vector<Ticket>* granted) {
  const std::set<GrantOrder>& turns = link->ready[Index(direction)];
  while (!turns.empty()) {
    const SessionId id = turns.begin()->second;
    Session* session = FindSession(id);
    const Waiting& next = *Best(*session, direction);
    if (!FitsItsPart(*session, direction, next.request.bytes)) {
      UpdateTurn(id, session, direction);  // it was limited to its part after it became ready
      continue;
    }
    // This session is next and waits for room on the link; later ones must not take it meanwhile.
    const bool waits_for_others = limits_.link_bytes_in_flight > 0 && !IsHeldToItsPart(*session);
    if (waits_for_others && !Fits(link->lines[Index(direction)].filled, next.request.bytes,
                                  limits_.link_bytes_in_flight)) {
      if (MarkLate(now_)) continue;
      link_is_full_ = true;
      return;
    }
    granted->push_back(Start(id, session, next));
  }
}

std::vector<Ticket> TransferScheduler::Grant(Time now) {
  std::vector<Ticket> granted;
  now_ = std::max(now_, now);
  link_is_full_ = false;
  for (Link& link : links_) {
    for (int i = 0; i < kDirections; ++i) GrantOnLink(&link, DirectionAt(i), &granted);
  }
  return granted;
}

const Ticket* TransferScheduler::Find(SessionId id, TicketId ticket) const {
  const Session* session = FindSession(id);
  if (session == nullptr) return nullptr;
  const auto found = session->tickets.find(ticket);
  return found == session->tickets.end() ? nullptr : &found->second;
}

bool TransferScheduler::Complete(SessionId id, TicketId ticket, Time now) {
  Session* session = FindSession(id);
  if (session == nullptr) return false;
  const auto found = session->tickets.find(ticket);
  if (found == session->tickets.end()) return false;
  const TransferRequest& request = found->second.request;
  const int direction = Index(request.direction);
  session->lanes[direction].flight.tickets -= 1;
  session->lanes[direction].flight.bytes -= request.bytes;
  session->link->lines[direction].End(found->second, now);
  session->link->lines[direction].reading.copies.Add(now - found->second.granted_at);
  for (TransferTotals* totals : {&session->totals, &session->link->totals}) {
    TransferCount& count = totals->At(request.direction, request.cause);
    count.bytes += request.bytes;
    count.transfers += 1;
  }
  now_ = std::max(now_, now);
  if (found->second.overdue) session->overdue -= 1;
  if (found->second.late) {
    session->late -= 1;
    HoldToParts(session->tenant);
  }
  running_.erase({found->second.granted_at, ticket});
  session->free_indices.push_back(found->second.completion_index);
  const Direction freed = request.direction;
  session->tickets.erase(found);
  UpdateTurn(id, session, freed);
  return true;
}

uint64_t TransferScheduler::MarkOverdue(Time now) {
  uint64_t marked = 0;
  MarkLate(now);
  for (; !running_.empty(); running_.erase(running_.begin())) {
    const auto& [oldest, id] = *running_.begin();
    if (now - oldest.first < limits_.ticket_timeout) break;
    Session* session = FindSession(id);
    session->tickets.find(oldest.second)->second.overdue = true;
    session->overdue += 1;
    session->link->overdue_tickets += 1;
    marked += 1;
  }
  return marked;
}

std::optional<Time> TransferScheduler::NextTimeout() const {
  if (running_.empty()) return std::nullopt;
  const Time overdue = running_.begin()->first.first + limits_.ticket_timeout;
  const auto fresh = link_is_full_ ? running_.upper_bound(late_until_) : running_.end();
  if (fresh == running_.end()) return overdue;
  return std::min(overdue, fresh->first.first + limits_.link_patience);
}

bool TransferScheduler::IsSlow(SessionId id) const {
  const Session* session = FindSession(id);
  return session != nullptr && session->overdue > 0;
}

InFlight TransferScheduler::FlightOf(SessionId id, Direction direction) const {
  const Session* session = FindSession(id);
  return session == nullptr ? InFlight{} : session->lanes[Index(direction)].flight;
}

InFlight TransferScheduler::FlightOf(DeviceIndex device, Direction direction) const {
  if (shm::Value(device) >= links_.size()) return {};
  return LinkOf(device).lines[Index(direction)].reading.flight;
}

TransferTotals TransferScheduler::TotalsOf(DeviceIndex device) const {
  return shm::Value(device) < links_.size() ? LinkOf(device).totals : TransferTotals{};
}

LinkReading TransferScheduler::ReadLink(DeviceIndex device, Direction direction, Time now) const {
  if (shm::Value(device) >= links_.size()) return {};
  const Link::Line& line = LinkOf(device).lines[Index(direction)];
  LinkReading reading = line.reading;
  if (reading.flight.tickets > 0) reading.busy = reading.busy + (now - line.busy_since);
  return reading;
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
