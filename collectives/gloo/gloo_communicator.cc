#include "collectives/gloo/gloo_communicator.h"

#include <gloo/transport/device.h>
#include <gloo/transport/tcp/attr.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collectives/communicator_backend.h"
#include "collectives/gloo/gloo_links.h"
#include "collectives/gloo/member.h"
#include "collectives/gloo/sigpipe_guard.h"
#include "collectives/reduce.h"

namespace geminid::collectives {
namespace {

// Memory for what the peers send to be reduced; longer slices are reduced piece by piece.
constexpr size_t kScratchBytes = 64 * 1024 * 1024;

// Everything is composed of messages, not of gloo's own collectives: those have no reduce-scatter,
// do not say which rank is missing, and add in an order of their own.
class GlooBackend final : public CommunicatorBackend {
 public:
  GlooBackend(std::unique_ptr<GlooLinks> links, absl::Duration timeout)
      : CommunicatorBackend(links->options().rank,
                            static_cast<int>(links->options().world_ranks.size()), timeout),
        links_(std::move(links)) {}

  const char* BackendName() const override { return "gloo"; }

 protected:
  absl::Status DoAllGather(const Operation& operation, const std::byte* in, std::byte* out,
                           const Partition& parts) override {
    const size_t width = SizeOf(operation.dtype);
    std::vector<GlooLinks::Sending> sends;
    std::vector<GlooLinks::Receiving> receives;
    for (const int r : Peers()) {
      sends.push_back({r, in, parts.Count(Rank()) * width});
      receives.push_back({r, out + parts.Begin(r) * width, parts.Count(r) * width});
    }
    Copy(out + parts.Begin(Rank()) * width, in, parts.Count(Rank()) * width);
    return Exchange(operation, sends, receives);
  }

  absl::Status DoReduceScatter(const Operation& operation, const std::byte* in, std::byte* out,
                               const Partition& parts) override {
    const size_t width = SizeOf(operation.dtype);
    const auto peers = static_cast<size_t>(std::max(1, WorldSize() - 1));
    const size_t piece = std::max<size_t>(1, kScratchBytes / peers / width);
    size_t begin = 0;
    do {
      absl::Status status = ReducePiece(operation, in, out, parts, begin, piece);
      if (!status.ok()) return status;
      begin += piece;
    } while (begin < parts.MaxCount());
    return absl::OkStatus();
  }

  absl::Status DoBroadcast(const Operation& operation, std::byte* inout) override {
    const size_t bytes = operation.count * SizeOf(operation.dtype);
    const int root = operation.root_or_tag;
    std::vector<GlooLinks::Sending> sends;
    std::vector<GlooLinks::Receiving> receives;
    if (Rank() == root) {
      for (const int r : Peers()) sends.push_back({r, inout, bytes});
    } else {
      receives.push_back({root, inout, bytes});
    }
    return Exchange(operation, sends, receives);
  }

  absl::Status DoAllToAll(const Operation& operation, const std::byte* in,
                          std::byte* out) override {
    const size_t bytes = operation.count * SizeOf(operation.dtype);
    std::vector<GlooLinks::Sending> sends;
    std::vector<GlooLinks::Receiving> receives;
    for (const int r : Peers()) {
      sends.push_back({r, in + static_cast<size_t>(r) * bytes, bytes});
      receives.push_back({r, out + static_cast<size_t>(r) * bytes, bytes});
    }
    const size_t own = static_cast<size_t>(Rank()) * bytes;
    Copy(out + own, in + own, bytes);
    return Exchange(operation, sends, receives);
  }

  absl::Status DoBarrier(const Operation& operation) override {
    std::vector<GlooLinks::Sending> sends;
    std::vector<GlooLinks::Receiving> receives;
    for (const int r : Peers()) {
      sends.push_back({.peer = r});
      receives.push_back({.peer = r});
    }
    return Exchange(operation, sends, receives);
  }

  absl::Status DoSendReceive(const Message* send, const Message* receive) override {
    std::vector<GlooLinks::Sending> sends;
    std::vector<GlooLinks::Receiving> receives;
    if (send != nullptr) sends.push_back({send->peer, send->in, send->bytes()});
    if (receive != nullptr) receives.push_back({receive->peer, receive->out, receive->bytes()});
    const Message& any = send != nullptr ? *send : *receive;  // one of them there is
    const Operation& sent = any.operation;
    const Operation& expected = receive != nullptr ? receive->operation : sent;
    return Exchange(sent, sends, expected, receives);
  }

  void DoAbort(const absl::Status& status) override { links_->Abort(status); }
  absl::Status DoCheckHealth() const override { return links_->failure(); }

  absl::StatusOr<std::unique_ptr<Communicator>> DoSubset(const std::string& key,
                                                         std::span<const int> ranks) override {
    GlooLinks::Options options = links_->options();
    options.group = absl::StrCat(options.group, "/", key);
    options.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), Rank()) - ranks.begin());
    options.world_ranks.clear();
    for (const int r : ranks) {
      options.world_ranks.push_back(links_->options().world_ranks[static_cast<size_t>(r)]);
    }
    auto links = GlooLinks::Connect(std::move(options));
    if (!links.ok()) return links.status();
    return std::make_unique<Communicator>(
        std::make_unique<GlooBackend>(*std::move(links), timeout()));
  }

 private:
  // Starting after this rank, so that not all send to the same peer first.
  std::vector<int> Peers() const {
    std::vector<int> peers;
    for (int step = 1; step < WorldSize(); ++step) peers.push_back((Rank() + step) % WorldSize());
    return peers;
  }

  absl::Status ReducePiece(const Operation& operation, const std::byte* in, std::byte* out,
                           const Partition& parts, size_t begin, size_t piece) {
    const size_t width = SizeOf(operation.dtype);
    auto length = [&](int rank) {
      return begin >= parts.Count(rank) ? 0 : std::min(piece, parts.Count(rank) - begin);
    };
    const size_t own_bytes = length(Rank()) * width;
    const size_t needed = own_bytes * static_cast<size_t>(WorldSize());
    if (scratch_.size() < needed) scratch_.resize(needed);
    std::vector<const std::byte*> inputs(static_cast<size_t>(WorldSize()));
    inputs[static_cast<size_t>(Rank())] = in + (parts.Begin(Rank()) + begin) * width;
    std::vector<GlooLinks::Sending> sends;
    std::vector<GlooLinks::Receiving> receives;
    for (const int r : Peers()) {
      std::byte* from_peer = scratch_.data() + static_cast<size_t>(r) * own_bytes;
      inputs[static_cast<size_t>(r)] = from_peer;
      sends.push_back({r, in + (parts.Begin(r) + begin) * width, length(r) * width});
      receives.push_back({r, from_peer, own_bytes});
    }
    GEMINID_RETURN_IF_ERROR(Exchange(operation, sends, receives));
    ReduceInOrder(inputs, out + begin * width, length(Rank()), operation.dtype, operation.reduce,
                  operation.scale);
    return absl::OkStatus();
  }

  absl::Status Exchange(const Operation& operation, std::span<const GlooLinks::Sending> sends,
                        std::span<const GlooLinks::Receiving> receives) {
    return Exchange(operation, sends, operation, receives);
  }

  absl::Status Exchange(const Operation& sent, std::span<const GlooLinks::Sending> sends,
                        const Operation& expected, std::span<const GlooLinks::Receiving> receives) {
    GEMINID_RETURN_IF_ERROR(links_->Exchange(sent, sends, expected, receives, timeout()));
    for (const auto& send : sends) CountSent(send.peer, send.bytes);
    for (const auto& receive : receives) CountReceived(receive.peer, receive.bytes);
    return absl::OkStatus();
  }

  static void Copy(std::byte* to, const std::byte* from, size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
  }

  const std::unique_ptr<GlooLinks> links_;
  std::vector<std::byte> scratch_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> ConnectGloo(int rank, int world_size,
                                                          GlooOptions options) {
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("gloo communicator: rank ", rank, " of ", world_size));
  }
  auto member = Member::Join({.host = options.host,
                              .port = options.port,
                              .rank = rank,
                              .world_size = world_size,
                              .job = options.job,
                              .connect_timeout = options.connect_timeout,
                              .listener = std::move(options.listener),
                              .interface_address = options.interface_address});
  if (!member.ok()) return member.status();
  std::shared_ptr<gloo::transport::Device> device;
  try {
    const SigpipeGuard guard;  // for the thread that the device starts
    gloo::transport::tcp::attr attributes;
    attributes.hostname = (*member)->address();
    device = gloo::transport::tcp::CreateDevice(attributes);
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot use the address ", (*member)->address(), " for data: ", error.what()));
  }
  std::vector<int> world_ranks(static_cast<size_t>(world_size));
  for (int r = 0; r < world_size; ++r) world_ranks[static_cast<size_t>(r)] = r;
  auto links = GlooLinks::Connect({.member = *std::move(member),
                                   .device = std::move(device),
                                   .group = "world",
                                   .world_ranks = std::move(world_ranks),
                                   .rank = rank,
                                   .connect_timeout = options.connect_timeout});
  if (!links.ok()) return links.status();
  return std::make_unique<Communicator>(
      std::make_unique<GlooBackend>(*std::move(links), options.timeout));
}

}  // namespace geminid::collectives
