// The descriptors that a holder stores, by name. It does not know what they are.
#ifndef GEMINID_DAEMON_HOLDER_DESCRIPTOR_TABLE_H_
#define GEMINID_DAEMON_HOLDER_DESCRIPTOR_TABLE_H_

#include <map>
#include <string>
#include <utility>

#include "base/unique_fd.h"
#include "daemon/holder/protocol.h"

namespace geminid::holder {

class DescriptorTable {
 public:
  enum class Next { kGoOn, kList, kFinish, kRefuse };

  // Does what `message` asks, with the descriptor that came with it, if one did. kList: the caller
  // sends items(). kRefuse: the message makes no sense, and nothing has changed.
  Next Handle(const Message& message, base::UniqueFd descriptor) {
    const bool takes_one = message.op == Op::kPut;
    if (takes_one != descriptor.valid()) return Next::kRefuse;
    switch (message.op) {
      case Op::kPut:
        items_[message.name] = std::move(descriptor);
        return Next::kGoOn;
      case Op::kRemove:
        items_.erase(message.name);
        return Next::kGoOn;
      case Op::kList:
        return Next::kList;
      case Op::kFinish:
        items_.clear();
        return Next::kFinish;
      case Op::kNone:
      case Op::kItem:
      case Op::kEnd:
      case Op::kOtherVersion:
        break;
    }
    return Next::kRefuse;
  }

  const std::map<std::string, base::UniqueFd>& items() const { return items_; }

 private:
  std::map<std::string, base::UniqueFd> items_;
};

}  // namespace geminid::holder

#endif  // GEMINID_DAEMON_HOLDER_DESCRIPTOR_TABLE_H_
