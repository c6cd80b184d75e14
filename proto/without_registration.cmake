# Copies generated code of Protocol Buffers from IN to OUT without the object that registers the file's descriptors when a program or
# library is loaded. The messages work without: their descriptors are registered when something asks for one.
file(READ ${IN} code)
set(registration "PROTOBUF_ATTRIBUTE_INIT_PRIORITY2 static ::_pbi::AddDescriptorsRunner [^;]+;")
if(NOT code MATCHES "${registration}")
  message(NOTICE "${IN}: registers its descriptors in a way that is not known here; libgeminid and libgeminid_c then "
                 "cannot be loaded into one process")
endif()
string(REGEX REPLACE "${registration}" "" code "${code}")
file(WRITE ${OUT} "${code}")
