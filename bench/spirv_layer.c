/* A Vulkan layer that writes each SPIR-V module to a file of the folder $WEBNORM_SPIRV, in order of creation.

   It shows what naga and Tint generate, whose own interfaces do not. bench.backends compiles and loads it.
   The structures equal the ones in vulkan.h and vk_layer.h, so that no headers need to be installed. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*Function)(void);
typedef Function (*GetAddress)(void *, const char *);
typedef int (*Create)(void *, const void *, const void *, void *);
typedef int (*CreateInstance)(const void *, const void *, void *);
typedef struct { int type; const void *next; uint32_t flags; size_t size; const uint32_t *code; } Module;
typedef struct Link { struct Link *next; GetAddress instance, other; } Link;
typedef struct Chain { int type; struct Chain *next; int function; Link *link; } Chain;

enum { INSTANCE_CHAIN = 47, DEVICE_CHAIN = 48, LINK_INFO = 0 };

static GetAddress of_instance, of_device;
static void *instance;
static int number;

/* Both create-info structures begin with a type and a pointer to the next structure. */
static Link *take_link(const void *info, int type) {
    Chain *chain = ((const Chain *)info)->next;
    while (chain && !(chain->type == type && chain->function == LINK_INFO)) chain = chain->next;
    if (!chain) return NULL;
    Link *link = chain->link;
    chain->link = link->next; /* The next layer finds its own link here. */
    return link;
}

static int create_module(void *device, const Module *info, const void *allocator, void *module) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%d-%06d.spv", getenv("WEBNORM_SPIRV"), (int)getpid(), number++);
    FILE *file = fopen(path, "wb");
    if (file) {
        fwrite(info->code, 1, info->size, file);
        fclose(file);
    }
    return ((Create)of_device(device, "vkCreateShaderModule"))(device, info, allocator, module);
}

static int create_device(void *physical, const void *info, const void *allocator, void *device) {
    Link *link = take_link(info, DEVICE_CHAIN);
    if (!link) return -3; /* VK_ERROR_INITIALIZATION_FAILED */
    of_device = link->other;
    return ((Create)link->instance(instance, "vkCreateDevice"))(physical, info, allocator, device);
}

static int create_instance(const void *info, const void *allocator, void **created) {
    Link *link = take_link(info, INSTANCE_CHAIN);
    if (!link) return -3;
    of_instance = link->instance;
    int status = ((CreateInstance)of_instance(NULL, "vkCreateInstance"))(info, allocator, created);
    instance = *created;
    return status;
}

Function vkGetDeviceProcAddr(void *device, const char *name) {
    if (!strcmp(name, "vkGetDeviceProcAddr")) return (Function)vkGetDeviceProcAddr;
    if (!strcmp(name, "vkCreateShaderModule")) return (Function)create_module;
    return of_device ? of_device(device, name) : NULL;
}

Function vkGetInstanceProcAddr(void *own, const char *name) {
    if (!strcmp(name, "vkGetInstanceProcAddr")) return (Function)vkGetInstanceProcAddr;
    if (!strcmp(name, "vkGetDeviceProcAddr")) return (Function)vkGetDeviceProcAddr;
    if (!strcmp(name, "vkCreateInstance")) return (Function)create_instance;
    if (!strcmp(name, "vkCreateDevice")) return (Function)create_device;
    if (!strcmp(name, "vkCreateShaderModule")) return (Function)create_module;
    return of_instance ? of_instance(own, name) : NULL;
}
