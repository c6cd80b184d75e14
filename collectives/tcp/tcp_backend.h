// Collectives that consist of messages over TCP.
#ifndef GEMINID_COLLECTIVES_TCP_TCP_BACKEND_H_
#define GEMINID_COLLECTIVES_TCP_TCP_BACKEND_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/communicator_backend.h"
#include "collectives/tcp/links.h"
#include "collectives/tcp/tcp_communicator.h"

namespace geminid::collectives {

class TcpBackend final : public CommunicatorBackend {
 public:
  // See ConnectTcp().
  static absl::StatusOr<std::unique_ptr<TcpBackend>> Connect(int rank, int world_size,
                                                             TcpOptions options);
  TcpBackend(std::unique_ptr<TcpLinks> links, absl::Duration timeout);

  const char* BackendName() const override { return "tcp"; }
  TcpLinks& links() const { return *links_; }
  // See DoSubset().
  absl::StatusOr<std::unique_ptr<TcpBackend>> ConnectSubset(const std::string& key,
                                                            std::span<const int> ranks);
  // See DoShrink().
  struct Remainder {
    std::unique_ptr<TcpBackend> backend;
    std::vector<int> ranks;  // in the old group, ascending
  };
  absl::StatusOr<Remainder> ConnectSurvivors();
  // Counts the bytes that an exchange over links() has moved.
  void Count(const ExchangeMessages& messages);

  absl::Status DoAllGather(const Operation& operation, const std::byte* in, std::byte* out,
                           const Partition& parts) override;
  absl::Status DoReduceScatter(const Operation& operation, const std::byte* in, std::byte* out,
                               const Partition& parts) override;
  absl::Status DoBroadcast(const Operation& operation, std::byte* inout) override;
  absl::Status DoAllToAll(const Operation& operation, const std::byte* in, std::byte* out) override;
  absl::Status DoBarrier(const Operation& operation) override;
  absl::Status DoSendReceive(const Message* send, const Message* receive) override;
  absl::StatusOr<Survivors> DoShrink() override;
  absl::StatusOr<std::unique_ptr<Communicator>> DoSubset(const std::string& key,
                                                         std::span<const int> ranks,
                                                         Messages messages) override;

  uint64_t NetworkReceived() const override;

 protected:
  void DoAbort(const absl::Status& status) override { links_->Abort(status); }
  absl::Status DoCheckHealth() const override { return links_->failure(); }
  std::vector<PeerTraffic> NetworkTraffic() const override { return CountedTraffic(); }

 private:
  // All other ranks, beginning after this one, so that not all ranks send to the same peer first.
  std::vector<int> Peers() const;
  absl::Status ReducePiece(const Operation& operation, const std::byte* in, std::byte* out,
                           const Partition& parts, size_t begin, size_t piece);
  absl::Status Exchange(const ExchangeMessages& messages);

  const std::unique_ptr<TcpLinks> links_;
  std::vector<std::byte> scratch_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_TCP_BACKEND_H_
