#include <spawn.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace geminid::planner {
namespace {

// The output of the helper in a process of its own, with only this environment.
std::string HelperOutput(const std::string& seed, std::vector<std::string> environment) {
  std::array<int, 2> ends = {};
  EXPECT_EQ(pipe(ends.data()), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  std::string path = PLAN_HASH_HELPER;
  std::string argument = seed;
  std::array<char*, 3> arguments = {path.data(), argument.data(), nullptr};
  std::vector<char*> variables;
  for (std::string& variable : environment) variables.push_back(variable.data());
  variables.push_back(nullptr);
  pid_t child = 0;
  EXPECT_EQ(
      posix_spawn(&child, path.c_str(), &actions, nullptr, arguments.data(), variables.data()), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string output;
  std::array<char, 4096> buffer = {};
  for (ssize_t got = 0; (got = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    output.append(buffer.data(), static_cast<std::size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  return output;
}

TEST(PlanHash, OtherProcessAddressesLocaleAndChunkOrder_SameBits) {
  const std::string first = HelperOutput("1", {});
  const std::set<std::string> lines = [&] {
    std::set<std::string> found;
    for (std::size_t at = 0; at < first.size(); at += 17) found.insert(first.substr(at, 17));
    return found;
  }();
  EXPECT_GT(lines.size(), 40u);  // one line per plan, nearly all different
  EXPECT_EQ(HelperOutput("2", {"LC_ALL=de_DE.UTF-8", "LANG=de_DE.UTF-8"}), first);
  EXPECT_EQ(HelperOutput("3", {"MALLOC_PERTURB_=165", "MALLOC_ARENA_MAX=1"}), first);
  // Addresses are not random from here on; the child inherits this.
  const int before = personality(0xffffffff);
  personality(static_cast<unsigned long>(before) | ADDR_NO_RANDOMIZE);
  const std::string fixed_addresses = HelperOutput("4", {"LC_ALL=C", "MALLOC_PERTURB_=90"});
  personality(static_cast<unsigned long>(before));
  EXPECT_EQ(fixed_addresses, first);
}

}  // namespace
}  // namespace geminid::planner
