#include "daemon/service/sessions/client_session.h"

#include <sys/socket.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/memfd.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "daemon/os/event.h"
#include "daemon/service/heritage/inherited_descriptors.h"

namespace geminid::service {

absl::StatusOr<std::shared_ptr<ClientSession>> ClientSession::Create(
    shm::SessionId id, uint64_t daemon_epoch, const core::SessionSpec& spec,
    const core::DeviceDescription& device, os::Peer peer, base::UniqueFd socket,
    DescriptorsInFlight* in_flight, base::UniqueFd commit) {
  GEMINID_ASSIGN_OR_RETURN(memory::SessionSegments segments,
                           memory::SessionSegments::Create(id, daemon_epoch, std::move(commit)));
  GEMINID_ASSIGN_OR_RETURN(base::UniqueFd daemon_event, os::CreateEvent());
  GEMINID_ASSIGN_OR_RETURN(os::WakeUp client_event, os::CreateWakeUp());
  GEMINID_ASSIGN_OR_RETURN(Token token, NewToken());
  const uint64_t bytes = base::RoundUpToPage(core::SessionBooks::Bytes());
  GEMINID_ASSIGN_OR_RETURN(
      base::UniqueFd books_fd,
      base::CreateSealedMemfd(absl::StrCat("geminid-session", shm::Value(id), "-books"), bytes));
  GEMINID_ASSIGN_OR_RETURN(base::Mapping books, base::Mapping::Map(books_fd, bytes));
  return std::shared_ptr<ClientSession>(
      new ClientSession(id, spec, device, token, std::move(peer), std::move(socket),
                        std::move(daemon_event), std::move(client_event), std::move(segments),
                        std::move(books_fd), std::move(books), in_flight));
}

absl::StatusOr<std::shared_ptr<ClientSession>> ClientSession::Adopt(
    const core::SessionFacts& facts, uint64_t daemon_epoch, const core::DeviceDescription& device,
    InheritedDescriptors::OfSession* kept, DescriptorsInFlight* in_flight) {
  const auto fd = [kept](const char* kind) -> base::UniqueFd& { return kept->kinds.at(kind); };
  GEMINID_ASSIGN_OR_RETURN(os::Peer peer, os::PeerOf(fd(kKeptSocket)));
  GEMINID_ASSIGN_OR_RETURN(
      base::Mapping books,
      base::Mapping::Map(fd(kKeptBooks), base::RoundUpToPage(core::SessionBooks::Bytes())));
  // The last step that can fail, because it takes its descriptors.
  GEMINID_ASSIGN_OR_RETURN(memory::SessionSegments segments,
                           memory::SessionSegments::Adopt(
                               facts.id, std::move(fd(kKeptState)), std::move(fd(kKeptClient)),
                               std::move(fd(kKeptCommit)), daemon_epoch));
  Token token;
  std::memcpy(token.data(), facts.token.data(), token.size());
  os::WakeUp client_event = {std::move(fd(kKeptClientEvent)), base::UniqueFd()};
  std::shared_ptr<ClientSession> session(new ClientSession(
      facts.id, facts.spec, device, token, std::move(peer), std::move(fd(kKeptSocket)),
      std::move(fd(kKeptDaemonEvent)), std::move(client_event), std::move(segments),
      std::move(fd(kKeptBooks)), std::move(books), in_flight));
  session->which_client = kept->which_client;
  session->rings_.PassOverAnswered();
  return session;
}

std::vector<std::pair<std::string, int>> ClientSession::DescriptorsToStore() const {
  const auto named = [this](const char* what, const base::UniqueFd& fd) {
    return std::pair(DescriptorName(id_, what, which_client), fd.get());
  };
  std::vector<std::pair<std::string, int>> kept = {
      named(kKeptState, segments_.writable_state_fd()), named(kKeptClient, segments_.client_fd()),
      named(kKeptCommit, segments_.commit_fd()),        named(kKeptDaemonEvent, daemon_event_),
      named(kKeptClientEvent, client_event_.ours),      named(kKeptSocket, *socket_)};
  if (stored_plan != nullptr)
    kept.emplace_back(PlanName(id_, stored_plan_number, which_client), stored_plan->fd().get());
  // The books last: without them the other descriptors belong to no session.
  kept.push_back(named(kKeptBooks, books_fd_));
  return kept;
}

ClientSession::ClientSession(shm::SessionId id, const core::SessionSpec& spec,
                             const core::DeviceDescription& device, const Token& token,
                             os::Peer peer, base::UniqueFd socket, base::UniqueFd daemon_event,
                             os::WakeUp client_event, memory::SessionSegments segments,
                             base::UniqueFd books_fd, base::Mapping books,
                             DescriptorsInFlight* in_flight)
    : id_(id),
      spec_(spec),
      device_(device),
      token_(token),
      peer_(std::move(peer)),
      socket_(std::make_shared<const base::UniqueFd>(std::move(socket))),
      daemon_event_(std::move(daemon_event)),
      client_event_(std::move(client_event)),
      segments_(std::move(segments)),
      books_fd_(std::move(books_fd)),
      books_(std::move(books)),
      in_flight_(in_flight),
      rings_(segments_) {}

// Descriptors that the client has taken are no longer counted, and its socket closes.
ClientSession::~ClientSession() { (void)in_flight_->Count(spec_.tenant); }

absl::Status ClientSession::SendWelcome(uint64_t daemon_epoch) const {
  shm::Welcome welcome = {};
  welcome.magic = shm::kWelcomeMagic;
  welcome.protocol_version = shm::kProtocolVersion;
  welcome.successor = successor;
  welcome.session_id = shm::Value(id_);
  welcome.daemon_epoch = daemon_epoch;
  welcome.device = device_;
  std::memcpy(welcome.token, token_.data(), token_.size());
  const std::array<int, shm::kWelcomeFds> fds = {
      segments_.state_fd().get(), segments_.client_fd().get(), segments_.commit_fd().get(),
      daemon_event_.get(), client_event_.theirs.get()};
  return in_flight_->Send(spec_.tenant, socket_, std::as_bytes(std::span(&welcome, 1)), fds);
}

absl::Status ClientSession::SendMemory(const shm::Memory& message, const base::UniqueFd& fd) const {
  const std::array<int, 1> fds = {fd.get()};
  return in_flight_->Send(spec_.tenant, socket_, std::as_bytes(std::span(&message, 1)), fds);
}

bool ClientSession::IsAsleep() const {
  return segments_.client()->cursor.asleep.load(std::memory_order_seq_cst) != 0;
}

void ClientSession::Wake(End end) const {
  os::Wake(client_event_.ours);
  if (end == End::kWrites) ::shutdown(socket_->get(), SHUT_WR);
  if (end == End::kAll) ::shutdown(socket_->get(), SHUT_RDWR);
}

bool ClientSession::TryArm() {
  segments_.state()->cursor.asleep.store(1, std::memory_order_seq_cst);
  if (!rings_.HasRequest()) return true;
  Disarm();
  return false;
}

void ClientSession::Disarm() {
  segments_.state()->cursor.asleep.store(0, std::memory_order_seq_cst);
}

void ClientSession::SetPhase(shm::Phase phase) {
  segments_.state()->header.phase.store(static_cast<uint32_t>(phase), std::memory_order_seq_cst);
}

ClientNumbers ClientSession::ReadNumbers() const {
  const shm::ClientCounters& counters = segments_.client()->counters;
  ClientNumbers numbers;
  for (int i = 0; i < shm::kStallCauses; ++i) {
    numbers.stall_nanoseconds[static_cast<size_t>(i)] =
        counters.stall_nanoseconds[i].load(std::memory_order_relaxed);
  }
  numbers.queued_nanoseconds = counters.queued_nanoseconds.load(std::memory_order_relaxed);
  numbers.step = counters.step.load(std::memory_order_relaxed);
  numbers.moment = counters.moment.load(std::memory_order_relaxed);
  numbers.disk = shm::LoadDiskUse(counters);
  numbers.batch = shm::LoadBatchNumbers(counters);
  return numbers;
}

absl::StatusOr<core::SessionBooks> MakeBooks(const ClientSession& session, core::Time opened_at) {
  core::SessionFacts facts;
  facts.id = session.id();
  facts.spec = session.spec();
  facts.device = session.device().index;
  facts.opened_at = opened_at;
  facts.token = session.token();
  return core::SessionBooks::Create(session.books_memory(), facts);
}

void Tell(const SessionPtr& session, shm::Phase phase, SleepingClient::End end, Waker* waker) {
  session->SetPhase(phase);
  waker->End(session, end);
}

}  // namespace geminid::service
