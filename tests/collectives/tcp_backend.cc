#include "tests/collectives/tcp_backend.h"

#include <gtest/gtest.h>

#include "collectives/tcp/socket.h"
#include "collectives/tcp/tcp_communicator.h"

namespace geminid::collectives {

Backend TcpBackend() {
  return {"tcp", [](int world_size, absl::Duration timeout) {
            auto listener = ListenTcp("127.0.0.1", 0);
            EXPECT_TRUE(listener.ok()) << listener.status();
            auto port = PortOf(listener->get());
            EXPECT_TRUE(port.ok()) << port.status();
            return ConnectInThreads(world_size, [&](int rank) {
              TcpOptions options{.port = *port, .job = "test", .timeout = timeout};
              if (rank == 0) options.listener = *std::move(listener);
              return ConnectTcp(rank, world_size, std::move(options));
            });
          }};
}

}  // namespace geminid::collectives
