#include "daemon/service/calls/tenant_calls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/os/event.h"
#include "daemon/service/calls/rpc_status.h"
#include "proto/shm/attach_messages.h"

namespace geminid::service {
namespace {

constexpr int64_t kNever = INT64_MAX;
// How often a tenant's waiting calls are logged.
constexpr int64_t kTellNanoseconds = 10'000'000'000;

bool Erase(std::deque<RpcCall*>* queue, RpcCall* call) { return std::erase(*queue, call) > 0; }

}  // namespace

class TenantCalls::Place {
 public:
  explicit Place(std::shared_ptr<TenantCalls> calls) : calls_(std::move(calls)) {}
  ~Place() { calls_->GiveBack(); }  // NOLINT(bugprone-exception-escape): a queue that shrinks
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  const std::shared_ptr<TenantCalls> calls_;
};

// gRPC deletes no reactor. This one lives until OnDone, which comes after Finish and the last
// callback.
class RpcCall : public grpc::ServerGenericBidiReactor {
 public:
  RpcCall(std::shared_ptr<TenantCalls> calls, grpc::GenericCallbackServerContext* context,
          const RpcMethod* method)
      : calls_(std::move(calls)), context_(context), method_(method) {}

  void OnReadDone(bool ok) override {
    if (!ok) return FinishOnce(absl::CancelledError("no request arrived"));
    if (request_.Length() > method_->bounds.bytes) {
      return FinishOnce(absl::ResourceExhaustedError(
          absl::StrCat(method_->path, ": a request of ", request_.Length(), " bytes; ",
                       method_->bounds.bytes, " are allowed: divide it into several")));
    }
    deadline_.store(kNever);
    if (!method_->is_long) return Serve(method_, caller_, &request_, finished_, this);
    // The worker that serves the call may outlive it: a client that cancels does not wait for the
    // planner.
    auto request = std::make_shared<grpc::ByteBuffer>();
    request->Swap(&request_);
    calls_->shared().workers->Submit(
        calls_->tenant(), [method = method_, caller = std::move(caller_), place = std::move(place_),
                           request, finished = finished_, call = this] {
          if (!finished->load()) Serve(method, caller, request.get(), finished, call);
        });
  }
  void OnCancel() override { calls_->OnCancelled(this); }
  void OnDone() override {
    calls_->OnDone(this);
    delete this;
  }

  // `call` exists while *finished is false, and may be touched only then.
  static void Serve(const RpcMethod* method, const Caller& caller, grpc::ByteBuffer* request,
                    const std::shared_ptr<std::atomic<bool>>& finished, RpcCall* call) {
    grpc::ByteBuffer response;
    const absl::Status status = method->serve(caller, request, &response);
    if (finished->exchange(true)) return;
    call->Count(status);
    if (!status.ok()) return call->FinishWith(status);
    call->response_.Swap(&response);
    call->deadline_.store(os::MonotonicNanoseconds() + kAnswerNanoseconds);
    call->StartWriteAndFinish(&call->response_, grpc::WriteOptions(), grpc::Status::OK);
  }

  void FinishOnce(const absl::Status& status) {
    if (finished_->exchange(true)) return;
    Count(status);
    FinishWith(status);
  }

  // Identifies the caller. The message is read only after that.
  absl::Status Authenticate() {
    caller_.identity = calls_->identity();
    if (!method_->needs_token) return absl::OkStatus();
    const auto& metadata = context_->client_metadata();
    const auto found = metadata.find(shm::kTokenMetadataKey);
    absl::StatusOr<SessionPtr> session = calls_->shared().hub->Authenticate(
        found == metadata.end() ? std::string()
                                : std::string(found->second.data(), found->second.size()));
    if (!session.ok()) return session.status();
    caller_.session = *std::move(session);
    return absl::OkStatus();
  }

  void Read() {
    deadline_.store(os::MonotonicNanoseconds() + kReceiveNanoseconds);
    StartRead(&request_);
  }
  void TakePlace(std::shared_ptr<TenantCalls::Place> place) { place_ = std::move(place); }
  void CancelIfLate(int64_t now) {
    if (now < deadline_.load()) return;
    deadline_.store(kNever);
    context_->TryCancel();
  }
  const RpcMethod& method() const { return *method_; }

 private:
  void FinishWith(const absl::Status& status) {
    if (absl::IsUnavailable(status)) context_->AddTrailingMetadata(shm::kMeantMetadataKey, "1");
    Finish(ToGrpc(status));
  }

  void Count(const absl::Status& status) {
    calls_->shared().times->Add(method_->path, Now() - began_, status.code());
  }

  const std::shared_ptr<TenantCalls> calls_;
  const core::Time began_ = Now();
  grpc::GenericCallbackServerContext* const context_;
  const RpcMethod* const method_;
  const std::shared_ptr<std::atomic<bool>> finished_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<int64_t> deadline_{kNever};
  Caller caller_;
  std::shared_ptr<TenantCalls::Place> place_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
};

namespace {

// A call that ends as soon as it begins.
class Refusal : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const absl::Status& status) { Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

TenantCalls::TenantCalls(Identity identity, CallShared* shared)
    : identity_(std::move(identity)),
      shared_(shared),
      ordinary_{config::kCallRate,
                {shared->limits->RateOf(config::kCallRate, config::kCallBurstSeconds), Now()},
                {}},
      listings_{config::kListingRate,
                {shared->limits->RateOf(config::kListingRate, config::kCallBurstSeconds), Now()},
                {}} {}

bool TenantCalls::MayPass(Gate* gate, core::Time now) {
  gate->rate.SetRate(shared_->limits->RateOf(gate->key, config::kCallBurstSeconds));
  return gate->rate.Take(now);
}

// Logs that a call waits. The call itself is served later.
void TenantCalls::LogWaitingCall(const config::ShareKey& key, const std::string& what) {
  const absl::Status why = shared_->limits->Refuse(key, tenant(), what, "some wait; make fewer");
  const int64_t now = os::MonotonicNanoseconds();
  if (now < tell_again_at_) return;
  tell_again_at_ = now + kTellNanoseconds;
  shared_->log->Write(tenant(), os::LogLevel::kWarning, "calls wait",
                      {{"tenant", tenant()}, {"error", std::string(why.message())}});
}

grpc::ServerGenericBidiReactor* TenantCalls::Begin(grpc::GenericCallbackServerContext* context) {
  const auto method = shared_->methods.find(context->method());
  if (method == shared_->methods.end()) {
    return new Refusal(absl::UnimplementedError(
        absl::StrCat("there is no method ", context->method().substr(0, 100))));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (calls_.size() >= shared_->limits->Get(config::kCalls)) {
    return new Refusal(shared_->limits->Refuse(
        config::kCalls, tenant(),
        absl::StrCat("has ", calls_.size(), " calls in progress, as many as a tenant may"),
        "wait for some of them, run the job as another tenant"));
  }
  auto* const call = new RpcCall(shared_from_this(), context, &method->second);
  calls_.insert(call);
  if (shared_->calls.fetch_add(1) == 0) shared_->on_first_call();
  Gate* const gate = call->method().is_listing ? &listings_ : &ordinary_;
  if (gate->waiting.empty() && MayPass(gate, Now())) {
    Admit(call);
  } else {
    gate->waiting.push_back(call);
    LogWaitingCall(gate->key,
                   absl::StrCat("makes more than ", shared_->limits->Get(gate->key),
                                call->method().is_listing ? " listings" : " calls", " a second"));
  }
  return call;
}

size_t TenantCalls::MostLongCalls() const {
  const uint32_t configured = shared_->limits->Get(config::kLongCalls);
  return configured > 0 ? configured : shared_->worker_count;
}

void TenantCalls::Admit(RpcCall* call) {
  if (absl::Status status = call->Authenticate(); !status.ok()) {
    call->FinishOnce(status);
  } else if (!call->method().is_long) {
    call->Read();
  } else if (places_taken_ < MostLongCalls()) {
    AdmitLong(call);
  } else {
    without_place_.push_back(call);
    LogWaitingCall(config::kLongCalls,
                   absl::StrCat("has ", places_taken_, " calls for memory and plans"));
  }
}

void TenantCalls::AdmitLong(RpcCall* call) {
  ++places_taken_;
  call->TakePlace(std::make_shared<Place>(shared_from_this()));
  call->Read();
}

void TenantCalls::GiveBack() {
  const std::lock_guard<std::mutex> lock(mutex_);
  --places_taken_;
  if (without_place_.empty()) return;
  RpcCall* const next = without_place_.front();
  without_place_.pop_front();
  AdmitLong(next);
}

void TenantCalls::OnCancelled(RpcCall* call) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!Erase(&ordinary_.waiting, call) && !Erase(&listings_.waiting, call)) {
      Erase(&without_place_, call);
    }
  }
  call->FinishOnce(absl::CancelledError("the call was cancelled"));
}

void TenantCalls::OnDone(RpcCall* call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  calls_.erase(call);
  shared_->calls.fetch_sub(1);
}

bool TenantCalls::idle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return calls_.empty();
}

void TenantCalls::Expire(int64_t now_nanoseconds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto now = core::Time::FromNanoseconds(now_nanoseconds);
  for (Gate* gate : {&ordinary_, &listings_}) {
    while (!gate->waiting.empty() && MayPass(gate, now)) {
      RpcCall* const next = gate->waiting.front();
      gate->waiting.pop_front();
      Admit(next);
    }
  }
  for (RpcCall* call : calls_) call->CancelIfLate(now_nanoseconds);
}

}  // namespace geminid::service
