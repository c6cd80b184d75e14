// One rank's session with a daemon in this process, and the parts from which the engine is made.
#ifndef GEMINID_TESTS_CLIENT_ZERO_ROOMS_FIXTURE_H_
#define GEMINID_TESTS_CLIENT_ZERO_ROOMS_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "client/zero/options/engine_setup.h"
#include "collectives/local/local_communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::zero {

class RoomsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kSize = 16384;  // elements of each of three parameters, a chunk each

  void SetUp() override {
    ASSERT_TRUE(env_.Start().ok());
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.device_memory_bytes = 256 << 10;
    auto session = Session::Connect(connect);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    Options options;
    options.data_type = DataType::kFloat32;
    options.chunk_elements = kSize;
    const std::vector<Parameter> parameters = {{.name = "a", .shape = {kSize}},
                                               {.name = "b", .shape = {kSize}},
                                               {.name = "c", .shape = {kSize}}};
    setup_.emplace(session_.get(), ranks_.get(), parameters, options);
    ASSERT_TRUE(setup_->Check().ok());
    ASSERT_TRUE(setup_->MakeLayout().ok());
    ASSERT_EQ(setup_->layout.chunks.size(), 3u);
  }

  geminid::testing::DaemonEnv env_;
  std::unique_ptr<collectives::Communicator> ranks_ = collectives::MakeSelfCommunicator();
  std::unique_ptr<Session> session_;
  std::optional<EngineSetup> setup_;
};

}  // namespace geminid::zero

#endif  // GEMINID_TESTS_CLIENT_ZERO_ROOMS_FIXTURE_H_
