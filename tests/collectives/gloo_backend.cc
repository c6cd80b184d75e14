#include "tests/collectives/gloo_backend.h"

#include <gtest/gtest.h>

#include "collectives/gloo/gloo_communicator.h"
#include "collectives/gloo/tcp.h"

namespace geminid::collectives {

Backend GlooBackend() {
  return {"gloo", [](int world_size, absl::Duration timeout) {
            auto listener = ListenTcp("127.0.0.1", 0);
            EXPECT_TRUE(listener.ok()) << listener.status();
            auto port = PortOf(listener->get());
            EXPECT_TRUE(port.ok()) << port.status();
            return ConnectInThreads(world_size, [&](int rank) {
              GlooOptions options{.port = *port, .job = "test", .timeout = timeout};
              if (rank == 0) options.listener = *std::move(listener);
              return ConnectGloo(rank, world_size, std::move(options));
            });
          }};
}

}  // namespace geminid::collectives
