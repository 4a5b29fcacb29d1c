/* A language model server whose truth is known: every token has an appointment, and the log says when it was kept.
 *
 * One thread, epoll and one timerfd.  A request's schedule is absolute, counted from the moment its last byte was
 * read: token k (from 0) is due at receipt + ttft + k * itl and goes out in a send() of its own.  The stamp in the log
 * is taken right before that send(), so no client can hold a token earlier than the log says it left.
 * Clock: CLOCK_MONOTONIC in nanoseconds, which is what Python's time.perf_counter_ns() reads on Linux.
 *
 * cc -O2 -o truth truth.c;  truth --help lists the options.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define MAX_REQUEST (64u << 20)   /* bytes of one request, head and body */
#define MAX_TOKENS (1 << 20)      /* tokens of one answer */
#define DEFAULT_TOKENS 16         /* when the request names no max_tokens */
#define BURST 64                  /* tokens sent between two looks at the sockets */
#define IDLE_MS 20                /* after so long without an event the log is flushed */
#define TEXT " the"               /* what every token says: one token to most tokenizers */

typedef int64_t ns_t;

static struct {
    int port, osl;
    ns_t ttft, itl;
    bool role_early;
    const char *log, *model;
} opt = {.port = 0, .osl = 0, .ttft = 0, .itl = 0, .role_early = false, .log = NULL, .model = "truth"};

static ns_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (ns_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

/* ---- bytes that grow ------------------------------------------------------------------------------------- */

struct bytes {
    char *at;
    size_t len, cap;
};

static void room(struct bytes *b, size_t more) {
    if (b->len + more + 1 <= b->cap) return;
    size_t cap = b->cap ? b->cap : 4096;
    while (cap < b->len + more + 1) cap *= 2;
    if (!(b->at = realloc(b->at, cap))) die("memory");
    b->cap = cap;
}

static void add(struct bytes *b, const void *what, size_t len) {
    room(b, len);
    memcpy(b->at + b->len, what, len);
    b->len += len;
    b->at[b->len] = 0;
}

static void add_text(struct bytes *b, const char *text) { add(b, text, strlen(text)); }

static void drop_front(struct bytes *b, size_t n) {
    b->len -= n;
    memmove(b->at, b->at + n, b->len);
    if (b->at) b->at[b->len] = 0;
}

/* ---- what a request asks for: one pass over its JSON ----------------------------------------------------- */

struct ask {
    bool stream, usage;
    long tokens;      /* max_tokens or max_completion_tokens; -1 when not named */
    uint32_t prompt;  /* words of the prompt's or messages' text, or number of token ids */
};

enum place { ROOT, SKIP, STREAM, OPTIONS, USAGE, TOKENS, MESSAGES, PROMPT };

struct scan {
    const char *p, *end;
    struct ask *ask;
    int depth;
};

static bool key_is(const char *key, size_t len, const char *name) {
    return len == strlen(name) && !memcmp(key, name, len);
}

static enum place below(enum place here, const char *key, size_t len) {
    switch (here) {
    case ROOT:
        if (key_is(key, len, "stream")) return STREAM;
        if (key_is(key, len, "stream_options")) return OPTIONS;
        if (key_is(key, len, "max_tokens") || key_is(key, len, "max_completion_tokens")) return TOKENS;
        if (key_is(key, len, "messages")) return MESSAGES;
        if (key_is(key, len, "prompt")) return PROMPT;
        return SKIP;
    case OPTIONS: return key_is(key, len, "include_usage") ? USAGE : SKIP;
    case MESSAGES: return key_is(key, len, "content") ? PROMPT : SKIP;
    case PROMPT: return key_is(key, len, "text") ? PROMPT : SKIP;
    default: return SKIP;
    }
}

static void blanks(struct scan *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t')) s->p++;
}

/* The text between the quotes; s->p is left behind the closing one. */
static bool scan_string(struct scan *s, const char **text, size_t *len) {
    if (s->p >= s->end || *s->p != '"') return false;
    const char *start = ++s->p;
    while (s->p < s->end && *s->p != '"') s->p += *s->p == '\\' ? 2 : 1;
    if (s->p >= s->end) return false;
    *text = start;
    *len = (size_t)(s->p++ - start);
    return true;
}

static uint32_t count_words(const char *p, size_t len) {
    uint32_t words = 0;
    bool inside = false;
    for (const char *end = p + len; p < end; p++) {
        bool blank = *p == ' ';
        if (*p == '\\' && p + 1 < end) {
            p++;
            blank = *p == 'n' || *p == 't' || *p == 'r';
        }
        if (!blank && !inside) words++;
        inside = !blank;
    }
    return words;
}

static bool scan_value(struct scan *s, enum place place);

static bool scan_members(struct scan *s, enum place place, bool object) {
    char close = object ? '}' : ']';
    s->p++;
    blanks(s);
    if (s->p < s->end && *s->p == close) return s->p++, true;
    while (s->p < s->end) {
        enum place inner = place;
        if (object) {
            const char *key;
            size_t len;
            blanks(s);
            if (!scan_string(s, &key, &len)) return false;
            inner = below(place, key, len);
            blanks(s);
            if (s->p >= s->end || *s->p++ != ':') return false;
        }
        if (!scan_value(s, inner)) return false;
        blanks(s);
        if (s->p >= s->end) return false;
        if (*s->p == close) return s->p++, true;
        if (*s->p++ != ',') return false;
    }
    return false;
}

static bool scan_value(struct scan *s, enum place place) {
    blanks(s);
    if (s->p >= s->end || s->depth > 64) return false;
    if (*s->p == '{' || *s->p == '[') {
        s->depth++;
        bool fine = scan_members(s, place, *s->p == '{');
        s->depth--;
        return fine;
    }
    if (*s->p == '"') {
        const char *text;
        size_t len;
        if (!scan_string(s, &text, &len)) return false;
        if (place == PROMPT) s->ask->prompt += count_words(text, len);
        return true;
    }
    const char *start = s->p;
    while (s->p < s->end && !strchr(",]} \n\r\t", *s->p)) s->p++;
    if (s->p == start) return false;
    bool yes = *start == 't', number = *start == '-' || (*start >= '0' && *start <= '9');
    if (place == STREAM) s->ask->stream = yes;
    if (place == USAGE) s->ask->usage = yes;
    if (place == TOKENS && number) s->ask->tokens = strtol(start, NULL, 10);
    if (place == PROMPT && number) s->ask->prompt++;
    return true;
}

static bool read_ask(const char *body, size_t len, struct ask *ask) {
    struct scan s = {.p = body, .end = body + len, .ask = ask, .depth = 0};
    *ask = (struct ask){.tokens = -1};
    blanks(&s);
    return s.p < s.end && *s.p == '{' && scan_value(&s, ROOT);
}

/* ---- connections and the heap of appointments ------------------------------------------------------------ */

struct conn {
    int fd;
    uint32_t number;                 /* in order of acceptance, from 0 */
    struct bytes in, out;            /* out: what a full socket has not taken yet */
    size_t head, body;               /* of the request being read; head 0: its end is not seen yet */
    bool close_after;
    ns_t first_byte;                 /* of the request being read; 0: none yet */
    /* the request being answered */
    bool active, chat;
    struct ask ask;
    ns_t receipt, role, due;
    uint64_t order;                  /* breaks ties between equal appointments: first come, first served */
    int place;                       /* in the heap; -1: not there */
    uint32_t serial, sent, tokens, blocked;
    ns_t *stamps;
    size_t stamps_cap;
    char id[256];
    struct bytes token;              /* the bytes of a token in the middle of the answer */
};

static struct conn **heap;
static size_t heap_len, heap_cap;
static uint64_t orders;

static bool earlier(const struct conn *a, const struct conn *b) {
    return a->due != b->due ? a->due < b->due : a->order < b->order;
}

static void put(size_t at, struct conn *c) {
    heap[at] = c;
    c->place = (int)at;
}

static void settle(size_t at) {
    struct conn *c = heap[at];
    for (; at && earlier(c, heap[(at - 1) / 2]); at = (at - 1) / 2) put(at, heap[(at - 1) / 2]);
    for (size_t child; (child = 2 * at + 1) < heap_len; at = child) {
        if (child + 1 < heap_len && earlier(heap[child + 1], heap[child])) child++;
        if (!earlier(heap[child], c)) break;
        put(at, heap[child]);
    }
    put(at, c);
}

static void appoint(struct conn *c, ns_t due) {
    c->due = due;
    c->order = orders++;
    if (c->place < 0) {
        if (heap_len == heap_cap && !(heap = realloc(heap, (heap_cap = heap_cap ? 2 * heap_cap : 256) * sizeof *heap)))
            die("memory");
        put(heap_len++, c);
    }
    settle((size_t)c->place);
}

static void forget(struct conn *c) {
    if (c->place < 0) return;
    size_t at = (size_t)c->place;
    c->place = -1;
    struct conn *last = heap[--heap_len];
    if (last == c) return;
    put(at, last);
    settle(at);
}

/* ---- the log --------------------------------------------------------------------------------------------- */

/* Little-endian records, each followed by id_len bytes of x-request-id and `sent` stamps of 8 bytes. */
struct entry {
    uint32_t serial, connection, flags, prompt, tokens, sent, blocked, id_len;
    int64_t first_byte, receipt, role, ttft, itl;
};
enum { CHAT = 1, STREAMED = 2, ASKED_USAGE = 4, CUT_SHORT = 8 };

static FILE *logfile;
static bool log_dirty;

static void write_log(struct conn *c) {
    if (!logfile) return;
    struct entry e = {
        .serial = c->serial, .connection = c->number, .prompt = c->ask.prompt, .tokens = c->tokens, .sent = c->sent,
        .flags = (c->chat ? CHAT : 0) | (c->ask.stream ? STREAMED : 0) | (c->ask.usage ? ASKED_USAGE : 0)
                 | (c->sent < c->tokens ? CUT_SHORT : 0),
        .blocked = c->blocked, .id_len = (uint32_t)strlen(c->id), .first_byte = c->first_byte, .receipt = c->receipt,
        .role = c->role, .ttft = opt.ttft, .itl = opt.itl};
    fwrite(&e, sizeof e, 1, logfile);
    fwrite(c->id, 1, e.id_len, logfile);
    fwrite(c->stamps, sizeof *c->stamps, c->sent, logfile);
    log_dirty = true;
}

/* ---- sockets --------------------------------------------------------------------------------------------- */

static int ep;
static struct conn **conns;          /* by file descriptor */
static size_t conns_cap;
static uint32_t accepted, serials;

static void watch(struct conn *c, int op) {
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP | (c->out.len ? (uint32_t)EPOLLOUT : 0), .data.fd = c->fd};
    if (epoll_ctl(ep, op, c->fd, &e)) die("epoll_ctl");
}

static void hang_up(struct conn *c) {
    if (c->active) write_log(c);
    forget(c);
    conns[c->fd] = NULL;
    close(c->fd);
    free(c->in.at), free(c->out.at), free(c->token.at), free(c->stamps), free(c);
}

static bool send_all(struct conn *c, const char *data, size_t len) {
    ssize_t n = c->out.len ? 0 : send(c->fd, data, len, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (n < 0) n = 0;
    if ((size_t)n < len) {
        bool first = !c->out.len;
        add(&c->out, data + n, len - (size_t)n);
        c->blocked++;
        if (first) watch(c, EPOLL_CTL_MOD);
    }
    return true;
}

/* ---- answers --------------------------------------------------------------------------------------------- */

static void add_event(struct bytes *to, const char *json) {
    char size[32];
    snprintf(size, sizeof size, "%zx\r\ndata: ", strlen(json) + 8);
    add_text(to, size), add_text(to, json), add_text(to, "\n\n\r\n");
}

/* The members which every answer and chunk begins with. */
static const char *common(const struct conn *c, const char *object) {
    static char text[400];
    snprintf(text, sizeof text, "\"id\":\"%s-%08x\",\"object\":\"%s\",\"created\":%ld,\"model\":\"%s\"",
             c->chat ? "chatcmpl" : "cmpl", c->serial, object, (long)time(NULL), opt.model);
    return text;
}

static void add_chunk(struct bytes *to, const struct conn *c, const char *choices, const char *rest) {
    char json[1024];
    const char *object = c->chat ? "chat.completion.chunk" : "text_completion";
    snprintf(json, sizeof json, "{%s,\"choices\":[%s]%s}", common(c, object), choices, rest);
    add_event(to, json);
}

static void add_token(struct bytes *to, const struct conn *c, const char *finish) {
    char choice[160];
    snprintf(choice, sizeof choice,
             c->chat ? "{\"index\":0,\"delta\":{\"content\":\"" TEXT "\"},\"finish_reason\":%s}"
                     : "{\"index\":0,\"text\":\"" TEXT "\",\"finish_reason\":%s}", finish);
    add_chunk(to, c, choice, "");
}

static void add_head(struct bytes *to, const struct conn *c) {
    add_text(to, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n");
    add_text(to, c->close_after ? "Connection: close\r\n" : "");
    add_text(to, "Transfer-Encoding: chunked\r\n\r\n");
    const char *role = "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}";
    if (c->chat) add_chunk(to, c, role, "");
}

static const char *usage_text(const struct conn *c) {
    static char text[160];
    snprintf(text, sizeof text, ",\"usage\":{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%u}",
             c->ask.prompt, c->tokens, c->ask.prompt + c->tokens);
    return text;
}

static const char *finish_reason(const struct conn *c) {
    return c->ask.tokens >= 0 && c->tokens < (uint32_t)c->ask.tokens ? "\"stop\"" : "\"length\"";
}

static bool plain(struct conn *c, int status, const char *reason, const char *body) {
    char head[256];
    snprintf(head, sizeof head,
             "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n",
             status, reason, strlen(body), c->close_after ? "Connection: close\r\n" : "");
    struct bytes all = {0};
    add_text(&all, head), add_text(&all, body);
    bool fine = send_all(c, all.at, all.len);
    free(all.at);
    return fine;
}

static bool whole_answer(struct conn *c) {
    struct bytes text = {0}, json = {0};
    char part[512];
    for (uint32_t k = 0; k < c->tokens; k++) add_text(&text, TEXT);
    const char *object = c->chat ? "chat.completion" : "text_completion";
    snprintf(part, sizeof part, "{%s,\"choices\":[{\"index\":0,%s\"", common(c, object),
             c->chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
    add_text(&json, part), add(&json, text.at ? text.at : "", text.len);
    snprintf(part, sizeof part, "\"%s,\"finish_reason\":%s}]%s}", c->chat ? "}" : "", finish_reason(c), usage_text(c));
    add_text(&json, part);
    bool fine = plain(c, 200, "OK", json.at);
    free(text.at), free(json.at);
    return fine;
}

/* Sends the token that is due.  False: the connection is lost. */
static bool send_token(struct conn *c) {
    static struct bytes b;
    bool first = c->sent == 0, last = c->sent + 1 == c->tokens;
    if (!c->ask.stream) {
        ns_t stamp = now();
        while (c->sent < c->tokens) c->stamps[c->sent++] = stamp;
        return whole_answer(c);
    }
    if (!first && !last) {
        c->stamps[c->sent++] = now();
        return send_all(c, c->token.at, c->token.len);
    }
    b.len = 0;
    if (first && !c->role) add_head(&b, c);
    add_token(&b, c, last ? finish_reason(c) : "null");
    if (last) {
        if (c->ask.usage) add_chunk(&b, c, "", usage_text(c));
        add_event(&b, "[DONE]"), add_text(&b, "0\r\n\r\n");
    }
    ns_t stamp = now();
    if (!c->role) c->role = stamp;
    c->stamps[c->sent++] = stamp;
    return send_all(c, b.at, b.len);
}

static ns_t due_of(const struct conn *c) {
    return c->receipt + opt.ttft + (c->ask.stream ? c->sent : c->tokens - 1) * opt.itl;
}

static bool start_answer(struct conn *c) {
    long tokens = c->ask.tokens >= 0 ? c->ask.tokens : opt.osl ? opt.osl : DEFAULT_TOKENS;
    if (opt.osl && opt.osl < tokens) tokens = opt.osl;
    if (tokens < 1 || tokens > MAX_TOKENS)
        return plain(c, 400, "Bad Request", "{\"error\":{\"message\":\"max_tokens is out of range\"}}");
    c->active = true, c->serial = serials++, c->tokens = (uint32_t)tokens, c->sent = c->blocked = 0, c->role = 0;
    if ((size_t)tokens > c->stamps_cap) {
        c->stamps_cap = (size_t)tokens;
        if (!(c->stamps = realloc(c->stamps, c->stamps_cap * sizeof *c->stamps))) die("memory");
    }
    c->token.len = 0;
    add_token(&c->token, c, "null");
    if (opt.role_early && c->ask.stream) {
        struct bytes b = {0};
        add_head(&b, c);
        c->role = now();
        bool fine = send_all(c, b.at, b.len);
        free(b.at);
        if (!fine) return false;
    }
    appoint(c, due_of(c));
    return true;
}

/* ---- requests -------------------------------------------------------------------------------------------- */

/* The value of a header, without the blanks around it; NULL if there is none. */
static const char *header(const char *head, size_t len, const char *name, size_t *value_len) {
    size_t n = strlen(name);
    const char *end = head + len;
    for (const char *p = head; (p = memchr(p, '\n', (size_t)(end - p))) && ++p < end;) {
        if ((size_t)(end - p) <= n || strncasecmp(p, name, n) || p[n] != ':') continue;
        const char *v = p + n + 1, *stop = memchr(v, '\r', (size_t)(end - v));
        while (v < stop && (*v == ' ' || *v == '\t')) v++;
        while (stop > v && (stop[-1] == ' ' || stop[-1] == '\t')) stop--;
        return *value_len = (size_t)(stop - v), v;
    }
    return NULL;
}

static bool read_head(struct conn *c) {
    size_t n;
    const char *end = memmem(c->in.at, c->in.len, "\r\n\r\n", 4), *v;
    if (!end) return true;
    c->head = (size_t)(end - c->in.at) + 4;
    v = header(c->in.at, c->head, "content-length", &n);
    c->body = v ? strtoul(v, NULL, 10) : 0;
    v = header(c->in.at, c->head, "connection", &n);
    c->close_after = v && n == 5 && !strncasecmp(v, "close", 5);
    c->id[0] = 0;
    if ((v = header(c->in.at, c->head, "x-request-id", &n))) snprintf(c->id, sizeof c->id, "%.*s", (int)n, v);
    if (c->body > MAX_REQUEST || header(c->in.at, c->head, "transfer-encoding", &n)) {
        plain(c, 411, "Length Required", "{\"error\":{\"message\":\"a Content-Length of at most 64 MiB is needed\"}}");
        return false;
    }
    if (header(c->in.at, c->head, "expect", &n)) return send_all(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    return true;
}

static bool is(const struct conn *c, const char *start) { return !strncmp(c->in.at, start, strlen(start)); }

static bool dispatch(struct conn *c) {
    static char models[512];
    if (is(c, "GET /health ")) return plain(c, 200, "OK", "");
    if (is(c, "GET /v1/models ")) {
        snprintf(models, sizeof models,
                 "{\"object\":\"list\",\"data\":[{\"id\":\"%s\",\"object\":\"model\",\"created\":0,"
                 "\"owned_by\":\"truth\",\"max_model_len\":%d}]}", opt.model, MAX_TOKENS);
        return plain(c, 200, "OK", models);
    }
    c->chat = is(c, "POST /v1/chat/completions ");
    if (!c->chat && !is(c, "POST /v1/completions "))
        return plain(c, 404, "Not Found", "{\"error\":{\"message\":\"there is no such path\"}}");
    if (!read_ask(c->in.at + c->head, c->body, &c->ask))
        return plain(c, 400, "Bad Request", "{\"error\":{\"message\":\"the body is not a JSON object\"}}");
    return start_answer(c);
}

/* Takes as many complete requests as can be answered now.  False: the connection is lost. */
static bool take_requests(struct conn *c, ns_t stamp) {
    while (!c->active && !c->out.len && c->in.len) {
        if (!c->first_byte) c->first_byte = stamp;
        if (!c->head && !read_head(c)) return false;
        if (!c->head || c->in.len < c->head + c->body) return c->in.len <= MAX_REQUEST;
        c->receipt = stamp;
        if (!dispatch(c)) return false;
        drop_front(&c->in, c->head + c->body);
        c->head = c->body = 0;
        if (!c->active) {
            c->first_byte = 0;
            if (c->close_after && !c->out.len) return false;
        }
    }
    return true;
}

static bool finish_answer(struct conn *c) {
    write_log(c);
    c->active = false, c->first_byte = 0;
    if (c->close_after && !c->out.len) return false;
    return take_requests(c, now());
}

static bool readable(struct conn *c) {
    for (;;) {
        size_t want = c->head + c->body > c->in.len + 65536 ? c->head + c->body - c->in.len : 65536;
        room(&c->in, want);
        ssize_t n = read(c->fd, c->in.at + c->in.len, want);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
        if (n < 0) return true;
        c->in.len += (size_t)n;
        c->in.at[c->in.len] = 0;
        if (c->in.len > 2u * MAX_REQUEST || !take_requests(c, now())) return false;
        if ((size_t)n < want) return true;
    }
}

static bool writable(struct conn *c) {
    ssize_t n = send(c->fd, c->out.at, c->out.len, MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    drop_front(&c->out, (size_t)n);
    if (c->out.len) return true;
    watch(c, EPOLL_CTL_MOD);
    if (!c->active) return !c->close_after && take_requests(c, now());
    appoint(c, due_of(c));
    return true;
}

static void accept_all(int listener) {
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        if ((size_t)fd >= conns_cap) {
            size_t cap = (size_t)fd * 2 + 256;
            if (!(conns = realloc(conns, cap * sizeof *conns))) die("memory");
            memset(conns + conns_cap, 0, (cap - conns_cap) * sizeof *conns);
            conns_cap = cap;
        }
        struct conn *c = conns[fd] = calloc(1, sizeof *c);
        if (!c) die("memory");
        c->fd = fd, c->number = accepted++, c->place = -1;
        watch(c, EPOLL_CTL_ADD);
    }
}

/* Sends what is due, at most BURST tokens.  A connection that still holds unsent bytes waits for its client instead. */
static void keep_appointments(void) {
    ns_t time = now();
    for (int k = 0; k < BURST && heap_len && heap[0]->due <= time; k++) {
        struct conn *c = heap[0];
        uint32_t before = c->sent;
        bool fine = true;
        if (c->out.len) {
            forget(c);
            continue;
        }
        if (!(fine = send_token(c))) c->sent = before;
        if (fine && c->sent == c->tokens) {
            forget(c);
            fine = finish_answer(c);
        } else if (fine) {
            appoint(c, due_of(c));
        }
        if (!fine) hang_up(c);
    }
}

/* Arms the timer for the next appointment; says how long epoll_wait may sleep, in ms. */
static int set_alarm(int timer) {
    static ns_t armed;
    if (!heap_len) return log_dirty ? IDLE_MS : -1;
    ns_t due = heap[0]->due;
    if (due <= now()) return 0;
    if (due != armed) {
        struct itimerspec at = {.it_value = {.tv_sec = due / 1000000000, .tv_nsec = due % 1000000000}};
        if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL)) die("timerfd_settime");
        armed = due;
    }
    return log_dirty ? IDLE_MS : -1;
}

static void serve(int listener, int timer, int signals) {
    struct epoll_event events[256];
    for (;;) {
        int n = epoll_wait(ep, events, 256, set_alarm(timer));
        if (n < 0 && errno != EINTR) die("epoll_wait");
        if (n == 0 && log_dirty && (!heap_len || heap[0]->due > now())) fflush(logfile), log_dirty = false;
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == signals) return;
            if (fd == listener) accept_all(listener);
            if (fd == listener || fd == timer || !conns[fd]) continue;
            struct conn *c = conns[fd];
            bool fine = true;
            if (events[i].events & EPOLLOUT) fine = writable(c);
            if (fine && events[i].events & ~(uint32_t)EPOLLOUT) fine = readable(c);
            if (!fine) hang_up(c);
        }
        keep_appointments();
    }
}

/* ---- start ----------------------------------------------------------------------------------------------- */

#define USAGE \
    "usage: truth [--port N] [--ttft-ms X] [--itl-ms X] [--osl N] [--role-early] [--log FILE] [--model NAME]\n" \
    "Serves on 127.0.0.1 and prints its port (0, the default: any free one).  --osl caps the answer's tokens,\n" \
    "which are max_tokens otherwise.  --role-early sends head and role at receipt, not with the first token.\n" \
    "SIGTERM or SIGINT: writes the log of what was under way too, and ends.\n"

static void read_options(int argc, char **argv) {
    static const struct option names[] = {
        {"port", 1, 0, 'p'}, {"ttft-ms", 1, 0, 't'}, {"itl-ms", 1, 0, 'i'}, {"osl", 1, 0, 'n'},
        {"role-early", 0, 0, 'r'}, {"log", 1, 0, 'l'}, {"model", 1, 0, 'm'}, {"help", 0, 0, 'h'}, {0}};
    for (int o; (o = getopt_long(argc, argv, "", names, NULL)) != -1;) switch (o) {
        case 'p': opt.port = atoi(optarg); break;
        case 't': opt.ttft = (ns_t)(atof(optarg) * 1e6); break;
        case 'i': opt.itl = (ns_t)(atof(optarg) * 1e6); break;
        case 'n': opt.osl = atoi(optarg); break;
        case 'r': opt.role_early = true; break;
        case 'l': opt.log = optarg; break;
        case 'm': opt.model = optarg; break;
        default:
            fprintf(o == 'h' ? stdout : stderr, "%s", USAGE);
            exit(o == 'h' ? 0 : 2);
        }
    if (strlen(opt.model) > 128 || strpbrk(opt.model, "\"\\")) {
        fprintf(stderr, "truth: --model: a plain short name\n");
        exit(2);
    }
}

static void listen_to(int fd, uint32_t how) {
    struct epoll_event e = {.events = EPOLLIN | how, .data.fd = fd};
    if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e)) die("epoll_ctl");
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files)) files.rlim_cur = files.rlim_max, setrlimit(RLIMIT_NOFILE, &files);
    if (opt.log) {
        if (!(logfile = fopen(opt.log, "wb"))) die(opt.log);
        setvbuf(logfile, NULL, _IOFBF, 8 << 20);
        fwrite("FTRUTH1\n", 8, 1, logfile);
    }
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGTERM), sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signals = signalfd(-1, &set, SFD_CLOEXEC), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if ((ep = epoll_create1(EPOLL_CLOEXEC)) < 0 || signals < 0 || timer < 0 || listener < 0) die("start");
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof addr;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(listener, (void *)&addr, len) || listen(listener, 4096)) die("listen");
    if (getsockname(listener, (void *)&addr, &len)) die("getsockname");
    listen_to(listener, 0), listen_to(signals, 0);
    listen_to(timer, EPOLLET); /* once an expiry: nobody reads it, the next timerfd_settime() clears it */
    printf("%d\n", ntohs(addr.sin_port));
    fflush(stdout);
    serve(listener, timer, signals);
    for (size_t fd = 0; fd < conns_cap; fd++)
        if (conns[fd]) hang_up(conns[fd]);
    return logfile && fclose(logfile) ? (perror(opt.log), 1) : 0;
}
