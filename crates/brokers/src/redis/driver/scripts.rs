//! The steps that Redis does as a whole. Each has `KEYS` stream and set of delayed jobs, and `ARGV`
//! group, consumer, and what it says.

/// Adds the jobs that begin at `ARGV[first]`.
macro_rules! add {
    () => {
        "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function add(first)
    for i = first, #ARGV, 3 do
        if tonumber(ARGV[i]) == 0 then
            redis.call('XADD', KEYS[1], '*', 'job', ARGV[i + 2])
        else
            local due = string.format('%.0f', now + tonumber(ARGV[i]))
            redis.call('ZADD', KEYS[2], due, ARGV[i + 1] .. ARGV[i + 2])
        end
    end
end
"
    };
}

/// Reads an entry: `job_of` gives its job. What somebody else has written is no job of ours, nor is
/// what is longer than any: its handler sees no payload.
macro_rules! job {
    () => {
        "
local longest = 50331648
local function job_of(fields)
    for i = 1, #fields, 2 do
        if fields[i] == 'job' and #fields[i + 1] <= longest then
            return fields[i + 1]
        end
    end
    return ''
end
"
    };
}

/// Collects entries: `take` says whether there is room for more, of `ARGV[4]` bytes.
macro_rules! take {
    () => {
        concat!(
            job!(),
            "
local taken, size = {}, 0
local function take(entry)
    local job = job_of(entry[2])
    taken[#taken + 1] = entry[1]
    taken[#taken + 1] = job
    size = size + #job
    return size < tonumber(ARGV[4])
end
"
        )
    };
}

/// Then how many there may be and about how many bytes. Brings jobs to this consumer; answers
/// number and job of each in turn.
pub(super) const FETCH: &str = concat!(
    take!(),
    "
for _ = 1, tonumber(ARGV[3]) do
    local read = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', 1, 'STREAMS', KEYS[1], '>')
    if not read or not take(read[1][2][1]) then
        break
    end
end
return taken
"
);

/// Then how many there may be, about how many bytes, and for how many milliseconds a consumer is
/// silent whose jobs this one gets. Each step looks at ten that are out. Answers as `FETCH`.
pub(super) const CLAIM: &str = concat!(
    take!(),
    "
local cursor = '0-0'
for _ = 1, 1000 do
    local claimed = redis.call('XAUTOCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[5], cursor, 'COUNT', 1)
    cursor = claimed[1]
    local entry = claimed[2][1]
    if entry and not take(entry) or #taken >= 2 * ARGV[3] or cursor == '0-0' then
        break
    end
end
return taken
"
);

/// Then delay, unique bytes and job of each.
pub(super) const PUSH: &str = concat!(add!(), "add(3)");

/// Then the number of an entry, and jobs in its place. Answers 1, or 0 when it is not out.
pub(super) const SETTLE: &str = concat!(
    add!(),
    "
if redis.call('XACK', KEYS[1], ARGV[1], ARGV[3]) == 0 then
    return 0
end
redis.call('XDEL', KEYS[1], ARGV[3])
add(4)
return 1
"
);

/// Makes jobs ready whose time has come: a hundred at most. Answers in how many milliseconds the
/// next one is due, or -1.
pub(super) const PROMOTE: &str = concat!(
    add!(),
    "
local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now), 'LIMIT', 0, 100)
for _, member in ipairs(due) do
    redis.call('ZREM', KEYS[2], member)
    redis.call('XADD', KEYS[1], '*', 'job', string.sub(member, 17))
end
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
if first[2] then
    return math.max(0, tonumber(first[2]) - now)
end
return -1
"
);

/// Then numbers of entries: those that are still this consumer's stay so.
pub(super) const KEEP: &str = "
for i = 3, #ARGV do
    local own = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1, ARGV[2])
    if #own > 0 then
        redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i], 'JUSTID')
    end
end
";

/// Answers how many entries there are, how many of them are out, and how many jobs are delayed.
pub(super) const STAT: &str = "
local out = redis.call('XPENDING', KEYS[1], ARGV[1])
local brought = '0-0'
for _, fields in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local group = {}
    for i = 1, #fields, 2 do
        group[fields[i]] = fields[i + 1]
    end
    if group.name == ARGV[1] then
        brought = group['last-delivered-id']
    end
end
local first = redis.call('XRANGE', KEYS[1], '(' .. brought, '+', 'COUNT', 1)
local age = -1
if #first > 0 then
    local now = redis.call('TIME')
    age = now[1] * 1000 + math.floor(now[2] / 1000) - string.match(first[1][1], '^%d+')
end
return {redis.call('XLEN', KEYS[1]), out[1], redis.call('ZCARD', KEYS[2]), age}
";

/// Consumers that have nothing and have asked for nothing in an hour.
pub(super) const REMOVE_OLD: &str = "
for _, fields in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
    local consumer = {}
    for i = 1, #fields, 2 do
        consumer[fields[i]] = fields[i + 1]
    end
    if consumer.pending == 0 and consumer.idle > 3600000 then
        redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer.name)
    end
end
";

/// The jobs of a consumer would be lost with its name.
pub(super) const LEAVE: &str = "
local own = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
if #own == 0 then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
";

/// Then the number of an entry, how many there may be and about how many bytes. Answers, for
/// entries behind that one, number and job in turn; a job that is not ours is empty.
pub(super) const LIST: &str = concat!(
    job!(),
    "
local listed, size = {}, 0
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], '(' .. ARGV[3], '+', 'COUNT', ARGV[4])) do
    local job = job_of(entry[2])
    listed[#listed + 1] = entry[1]
    listed[#listed + 1] = job
    size = size + #job
    if size >= tonumber(ARGV[5]) then
        break
    end
end
return listed
"
);

/// Then how many to pass over, how many there may be and about how many bytes. Answers, from the
/// latest to the earliest, in how many milliseconds a job is due and the job, in turn.
pub(super) const LIST_DELAYED: &str = concat!(
    job!(),
    "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local listed, size = {}, 0
local last = tonumber(ARGV[3]) + tonumber(ARGV[4]) - 1
local members = redis.call('ZREVRANGE', KEYS[2], ARGV[3], last, 'WITHSCORES')
for i = 1, #members, 2 do
    listed[#listed + 1] = string.format('%.0f', math.max(0, tonumber(members[i + 1]) - now))
    listed[#listed + 1] = job_of({'job', string.sub(members[i], 17)})
    size = size + #members[i]
    if size >= tonumber(ARGV[5]) then
        break
    end
end
return listed
"
);
