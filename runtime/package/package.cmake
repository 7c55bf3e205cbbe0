# package.cmake: what `cmake --install` puts into a prefix: libraries, headers, the tool, LatheConfig.cmake, lathe.pc
# and lathe-rt.pc. Included by the top CMakeLists.txt. All of it finds its neighbours from its own place, so the prefix
# may be moved.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_CURRENT_LIST_DIR})
set(cmake_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Lathe)

# Components: lathe_runtime (shared libraries), lathe_devel (headers, CMake, pkg-config), lathe_static, lathe_tool,
# lathe_doc. Each has the targets of its own files alone: a package without a part is a whole installation.
install(TARGETS lathe_rt EXPORT LatheRtTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lathe_static)
install(TARGETS lathe EXPORT LatheStaticTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lathe_static)
install(EXPORT LatheRtTargets NAMESPACE Lathe:: DESTINATION ${cmake_folder} COMPONENT lathe_static)
install(EXPORT LatheStaticTargets NAMESPACE Lathe:: DESTINATION ${cmake_folder} COMPONENT lathe_static)
if(LATHE_SHARED)
    install(TARGETS lathe_shared lathe_rt_shared EXPORT LatheSharedTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lathe_runtime NAMELINK_COMPONENT lathe_devel)
    install(EXPORT LatheSharedTargets NAMESPACE Lathe:: DESTINATION ${cmake_folder} COMPONENT lathe_devel)
endif()
if(LATHE_TOOL)
    install(TARGETS lathe_tool EXPORT LatheToolTargets RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT lathe_tool)
    install(EXPORT LatheToolTargets NAMESPACE Lathe:: DESTINATION ${cmake_folder} COMPONENT lathe_tool)
endif()
install(FILES ${public_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT lathe_devel)
if(lathe_manual_tool)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lathe.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT lathe_tool)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lathe.bash
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME lathe COMPONENT lathe_tool)
endif()
# What messages point at, and what their pages lead to: the language reference, the shipped specs, examples, the
# licence, and those of what is linked statically.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/specs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/lathe/specs COMPONENT lathe_doc)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/ DESTINATION ${CMAKE_INSTALL_DATADIR}/lathe/examples
    COMPONENT lathe_doc)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${package_dir}/THIRD_PARTY DESTINATION ${CMAKE_INSTALL_DOCDIR}
    COMPONENT lathe_runtime)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${package_dir}/THIRD_PARTY DESTINATION ${CMAKE_INSTALL_DOCDIR}
    COMPONENT lathe_static EXCLUDE_FROM_ALL)

# Lua's static library by its name alone: where it is, is found out where it is used.
get_filename_component(LATHE_LUA_NAMES ${LATHE_LUA_LIBRARY} NAME)
if(LATHE_THIRD_PARTY) # it was built here, and is installed beside the others
    set(LATHE_LUA_NAMES liblua5.4.a)
    install(TARGETS lathe_lua_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lathe_static)
endif()
configure_package_config_file(${package_dir}/LatheConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/LatheConfig.cmake
    INSTALL_DESTINATION ${cmake_folder})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/LatheConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/LatheConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/LatheConfigVersion.cmake
    ${package_dir}/LatheKernels.cmake DESTINATION ${cmake_folder} COMPONENT lathe_devel)

# ---- pkg-config ----------------------------------------------------------------------------------

# lathe_pc_folder(OUT FOLDER): as ${prefix}/FOLDER, or absolute where it was given so.
function(lathe_pc_folder out folder)
    if(IS_ABSOLUTE ${folder})
        set(${out} ${folder} PARENT_SCOPE)
    else()
        set(${out} "\${prefix}/${folder}" PARENT_SCOPE)
    endif()
endfunction()

set(pc_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE ${pc_folder})
    set(PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
    string(REGEX REPLACE "[^/]+" ".." up ${pc_folder})
    set(PC_PREFIX "\${pcfiledir}/${up}")
endif()
lathe_pc_folder(PC_LIBDIR ${CMAKE_INSTALL_LIBDIR})
lathe_pc_folder(PC_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})

# lathe_pc(NAME DESCRIPTION LIBS PRIVATE): what only static linking needs is private where there is a shared library.
function(lathe_pc name description libs private)
    set(PC_NAME ${name})
    set(PC_DESCRIPTION ${description})
    set(PC_LIBS "-L\${libdir} ${libs}")
    set(PC_LIBS_PRIVATE ${private})
    if(NOT LATHE_SHARED)
        set(PC_LIBS "${PC_LIBS} ${private}")
        set(PC_LIBS_PRIVATE)
    endif()
    configure_file(${package_dir}/lathe.pc.in ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc @ONLY)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${pc_folder} COMPONENT lathe_devel)
endfunction()

string(REGEX REPLACE "^lib(.*)\\.a$" "-l\\1" lua_flag ${LATHE_LUA_NAMES})
lathe_pc(lathe "Shapes GPU kernels from short Lua files" -llathe "${lua_flag} -pthread -ldl -lm")
lathe_pc(lathe-rt "What kernels that Lathe compiled ahead of time need" -llathe_rt "-pthread -ldl -lm")
