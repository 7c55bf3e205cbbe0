# third_party.cmake: Lua, libpng and zlib from their sources in LATHE_THIRD_PARTY (lua/src, libpng, zlib), for builds
# that find none of them: wheels, cross builds. wheel.sh gets the sources. All names are hidden, so that they may stand
# in a shared library. Sets LATHE_LUA_INCLUDE_DIR and LATHE_LUA_LIBRARY, LATHE_PNG_INCLUDE and png_libraries.
set(third_party ${LATHE_THIRD_PARTY})
if(NOT IS_ABSOLUTE "${third_party}") # the package's own: beside CMakeLists.txt
    set(third_party ${CMAKE_CURRENT_SOURCE_DIR}/${third_party})
endif()
foreach(file lua/src/lua.h libpng/png.h zlib/zlib.h)
    if(NOT EXISTS ${third_party}/${file})
        message(FATAL_ERROR "LATHE_THIRD_PARTY: expected a folder with the sources of Lua 5.4 (lua/src), libpng and "
            "zlib, and ${third_party}/${file} is not there")
    endif()
endforeach()

# What stands between the operations of an expression is not for the compiler to choose: numbers are the same
# everywhere.
function(lathe_third_party target)
    add_library(${target} STATIC ${ARGN})
    target_compile_options(${target} PRIVATE -w -ffp-contract=off ${no_lto})
    set_target_properties(${target} PROPERTIES C_EXTENSIONS ON)
endfunction()

file(GLOB lua_files ${third_party}/lua/src/*.c)
list(FILTER lua_files EXCLUDE REGEX "/(lua|luac)\\.c$") # the programs
lathe_third_party(lathe_lua_static ${lua_files})
target_compile_definitions(lathe_lua_static PRIVATE LUA_COMPAT_5_3 LUA_USE_POSIX)
set_target_properties(lathe_lua_static PROPERTIES OUTPUT_NAME lua5.4)
set(LATHE_LUA_INCLUDE_DIR ${third_party}/lua/src)
set(LATHE_LUA_LIBRARY lathe_lua_static)

if(LATHE_TOOL)
    lathe_third_party(lathe_zlib ${third_party}/zlib/adler32.c ${third_party}/zlib/compress.c
        ${third_party}/zlib/crc32.c ${third_party}/zlib/deflate.c ${third_party}/zlib/inffast.c
        ${third_party}/zlib/inflate.c
        ${third_party}/zlib/inftrees.c ${third_party}/zlib/trees.c ${third_party}/zlib/zutil.c)
    target_include_directories(lathe_zlib PUBLIC ${third_party}/zlib)
    file(GLOB png_files ${third_party}/libpng/png*.c)
    list(FILTER png_files EXCLUDE REGEX "/pngtest\\.c$")
    set(png_folder ${CMAKE_CURRENT_BINARY_DIR}/libpng)
    configure_file(${third_party}/libpng/scripts/pnglibconf.h.prebuilt ${png_folder}/pnglibconf.h COPYONLY)
    lathe_third_party(lathe_png ${png_files})
    # Without code of one architecture: the same bytes on all of them.
    target_compile_definitions(lathe_png PRIVATE PNG_ARM_NEON_OPT=0 PNG_INTEL_SSE_OPT=0)
    target_include_directories(lathe_png PUBLIC ${third_party}/libpng ${png_folder})
    target_link_libraries(lathe_png PUBLIC lathe_zlib)
    set(LATHE_PNG_INCLUDE ${third_party}/libpng ${png_folder})
    set(png_libraries lathe_png -lm)
endif()
