#include "collectives/gloo/gloo_communicator.h"

#include <gloo/transport/device.h>
#include <gloo/transport/tcp/attr.h>
#include <gloo/transport/tcp/device.h>

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/gloo/gloo_backend.h"
#include "collectives/gloo/member.h"
#include "collectives/gloo/sigpipe_guard.h"

namespace geminid::collectives {

absl::StatusOr<std::unique_ptr<Communicator>> ConnectGloo(int rank, int world_size,
                                                          GlooOptions options) {
  auto backend = GlooBackend::Connect(rank, world_size, std::move(options));
  if (!backend.ok()) return backend.status();
  return std::make_unique<Communicator>(*std::move(backend));
}

absl::StatusOr<std::unique_ptr<GlooBackend>> GlooBackend::Connect(int rank, int world_size,
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
                              .silence = options.silence,
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
  return std::make_unique<GlooBackend>(*std::move(links), options.timeout);
}

}  // namespace geminid::collectives
