#include "tools/gpu-verify/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>

#include "base/unique_fd.h"

namespace geminid::gpu_verify {
namespace {

constexpr double kAmpleSeconds = 60;

TEST(Role, TextAndDescriptor_PassBothWays) {
  const Role role = Role::Start("echo", [](Channel& channel) {
    const Channel::Message message = channel.Receive();
    channel.Send(message.text + "!", message.fd.get());
  });
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const base::UniqueFd reader(ends[0]);
  const base::UniqueFd writer(ends[1]);
  role.channel().Send("hello", writer.get());
  const Channel::Message answer = role.channel().Receive();
  EXPECT_EQ(answer.text, "hello!");
  ASSERT_TRUE(answer.fd.valid());
  ASSERT_EQ(write(answer.fd.get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(read(reader.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
}

TEST(Role, ErrorOfTheBody_IsThrownWhereItIsAwaited) {
  const Role role = Role::Start("thrower", [](Channel&) { throw ProbeError("cuFoo: bad"); });
  try {
    role.channel().Receive();
    FAIL() << "nothing was thrown";
  } catch (const ProbeError& error) {
    EXPECT_STREQ(error.what(), "thrower: cuFoo: bad");
  }
}

TEST(Role, SilentEnd_IsThrownWhereAWordIsAwaited) {
  const Role role = Role::Start("mute", [](Channel&) {});
  EXPECT_THROW(role.channel().Receive(), ProbeError);
}

TEST(Role, Killed_IsSeenToEnd) {
  const Role role = Role::Start("waiter", [](Channel& channel) { channel.Receive(); });
  EXPECT_FALSE(role.WaitForEnd(0));
  role.Kill();
  EXPECT_TRUE(role.WaitForEnd(kAmpleSeconds));
}

TEST(Role, Destroyed_LeavesNoProcess) {
  pid_t pid;
  {
    const Role role = Role::Start("waiter", [](Channel& channel) { channel.Receive(); });
    pid = role.pid();
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST(Orphan, Killed_IsAwaited) {
  const Role parent = Role::Start("parent", [](Channel& channel) {
    const pid_t child = fork();
    while (child == 0) pause();
    channel.Send(std::to_string(child));
    channel.Receive();
  });
  const pid_t child = std::stoi(parent.channel().Receive().text);
  parent.Kill();
  ASSERT_TRUE(parent.WaitForEnd(kAmpleSeconds));
  EXPECT_EQ(kill(child, 0), 0);
  EXPECT_TRUE(KillOrphan(child, kAmpleSeconds));
}

}  // namespace
}  // namespace geminid::gpu_verify
