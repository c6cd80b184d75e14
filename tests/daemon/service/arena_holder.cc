// A client in a process of its own. Attaches to argv[1], asks for an arena of argv[2] bytes, holds
// its slabs, prints "ready" or the reason of a failure, and waits to be killed.
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <vector>

#include "geminid/v1/session.grpc.pb.h"
#include "tests/daemon_env/raw_client.h"

int main(int argc, char** argv) {
  using geminid::testing::RawClient;
  if (argc != 3) return 2;
  const absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(argv[1]);
  if (!client.ok()) {
    std::cout << client.status().message() << std::endl;
    return 1;
  }
  geminid::v1::CreateArenaRequest request;
  request.set_bytes(std::strtoull(argv[2], nullptr, 10));
  geminid::v1::CreateArenaResponse response;
  grpc::ClientContext context;
  (*client)->Authenticate(&context);
  const grpc::Status status = geminid::v1::SessionService::NewStub((*client)->channel())
                                  ->CreateArena(&context, request, &response);
  std::vector<geminid::testing::RawMessage> slabs;
  for (uint32_t i = 0; status.ok() && i < response.slabs(); ++i) {
    slabs.push_back(geminid::testing::Receive((*client)->connection()));
  }
  std::cout << (status.ok() ? "ready" : status.error_message()) << std::endl;
  for (;;) ::pause();
}
