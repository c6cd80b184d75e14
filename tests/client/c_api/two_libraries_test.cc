// libgeminid and libgeminid_c in one process: both have the messages of the daemon's services, and
// Protocol Buffers ends a process that registers them twice.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "absl/status/statusor.h"
#include "geminid/c_api.h"
#include "geminid/private_daemon.h"
#include "geminid/session.h"

namespace geminid {
namespace {

// Nothing refers to the function itself, so that the program does not link the library.
#define GEMINID_FIND(library, name) reinterpret_cast<decltype(&(name))>(dlsym(library, #name))

TEST(TwoLibraries, InOneProcess_HaveSessionsOfOneDaemon) {
  const auto daemon =
      PrivateDaemon::Start({.binary = GEMINID_DAEMON_PROGRAM,
                            .arguments = {"--host-memory", "64MiB", "--device-memory", "16MiB"},
                            .timeout = absl::Seconds(60)});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  ConnectOptions connect;
  connect.socket = (*daemon)->socket();
  connect.device_memory_bytes = 1 << 20;
  connect.timeout = absl::Seconds(60);
  const auto in_cpp = Session::Connect(connect);
  ASSERT_TRUE(in_cpp.ok()) << in_cpp.status();

  void* const library = dlopen(GEMINID_C_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto init = GEMINID_FIND(library, geminid_session_options_init);
  const auto make = GEMINID_FIND(library, geminid_session_connect);
  const auto check = GEMINID_FIND(library, geminid_session_health);
  const auto end = GEMINID_FIND(library, geminid_session_free);
  ASSERT_TRUE(init != nullptr && make != nullptr && check != nullptr && end != nullptr);
  geminid_session_options options;
  init(&options, sizeof options);
  options.socket = connect.socket.c_str();
  options.device_memory_bytes = 1 << 20;
  geminid_session* in_c = nullptr;
  ASSERT_EQ(make(&options, &in_c, nullptr), GEMINID_OK);
  EXPECT_EQ(check(in_c, nullptr), GEMINID_OK);
  EXPECT_TRUE((*in_cpp)->Allocate({{"more", ChunkKind::kGeneric, 4096}}).ok());
  end(&in_c);
  EXPECT_TRUE((*in_cpp)->Healthy().ok());
}

}  // namespace
}  // namespace geminid
