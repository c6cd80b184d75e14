# Installs the files beside the programs: units, the configuration, manual pages and completions.
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(configuration_folder /etc/geminid)
else()
  set(configuration_folder ${CMAKE_INSTALL_SYSCONFDIR}/geminid)
endif()

if(GEMINID_HAS_DAEMON)
  set(deploy ${PROJECT_SOURCE_DIR}/deploy)
  install(FILES ${deploy}/debian/geminid.textproto DESTINATION ${configuration_folder}
    COMPONENT daemon)
  # The units in the sources are for packages, whose prefix is /usr.
  foreach(kind system user)
    set(unit ${deploy}/systemd/geminid.service)
    if(kind STREQUAL user)
      set(unit ${deploy}/systemd/user/geminid.service)
    endif()
    file(READ ${unit} text)
    string(REPLACE "/usr/bin/" "${CMAKE_INSTALL_FULL_BINDIR}/" text "${text}")
    if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
      string(REPLACE "/etc/geminid/" "${CMAKE_INSTALL_FULL_SYSCONFDIR}/geminid/" text "${text}")
    endif()
    set(made ${CMAKE_CURRENT_BINARY_DIR}/units/${kind}/geminid.service)
    file(CONFIGURE OUTPUT ${made} CONTENT "${text}" @ONLY)
    install(FILES ${made} DESTINATION lib/systemd/${kind} COMPONENT daemon)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${unit})
  endforeach()
  install(FILES ${deploy}/systemd/geminid.socket ${deploy}/systemd/geminid-attach.socket
    DESTINATION lib/systemd/system COMPONENT daemon)
  install(FILES ${deploy}/systemd/geminid.service.d/preserve.conf
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/geminid/examples COMPONENT daemon)
endif()

# Manual pages and completions are made from each program's --help.
find_package(Python3 COMPONENTS Interpreter)
if(GEMINID_HAS_TOOLS AND Python3_FOUND)
  set(manuals ${CMAKE_CURRENT_BINARY_DIR}/manuals)
  set(tool_programs geminictl geminid-train geminid-sim geminid-gpu-verify)
  set(programs geminid geminid-agent ${tool_programs})
  list(TRANSFORM programs REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE files)
  set(packaging ${PROJECT_SOURCE_DIR}/tools/packaging)
  add_custom_command(OUTPUT ${manuals}/made
    COMMAND ${Python3_EXECUTABLE} -B ${packaging}/manuals.py ${manuals} ${PROJECT_VERSION} ${files}
    COMMAND ${CMAKE_COMMAND} -E touch ${manuals}/made
    DEPENDS ${programs} ${packaging}/manuals.py ${packaging}/help_text.py ${packaging}/man_page.py
            ${packaging}/completion.py
    COMMENT "Making manual pages and completions" VERBATIM)
  add_custom_target(geminid_manuals ALL DEPENDS ${manuals}/made)

  function(geminid_install_manuals component section)
    foreach(program ${ARGN})
      install(FILES ${manuals}/man${section}/${program}.${section}.gz
        DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section} COMPONENT ${component})
      install(FILES ${manuals}/bash/${program}
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT ${component})
      install(FILES ${manuals}/zsh/_${program}
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT ${component})
      install(FILES ${manuals}/fish/${program}.fish
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT ${component})
    endforeach()
  endfunction()
  geminid_install_manuals(daemon 8 geminid geminid-agent)
  geminid_install_manuals(tools 1 ${tool_programs})
endif()
