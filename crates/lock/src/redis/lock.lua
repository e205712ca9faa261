-- One step of a lock in Redis, whose clock counts. All of a resource is one value, so that a step is
-- one step in a cluster too: who holds it, and who waits in which order.
-- KEYS[1]: the resource. ARGV: the step, then what it needs; times are microseconds.

-- How long a resource is remembered that nobody wants, in milliseconds: tokens grow although the
-- clock may be set back a little.
local KEPT = 600000

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local packed = redis.call('GET', KEYS[1])
-- mode: 'r' or 'w'. held: by id, the end, the token and the ticket. line: tickets, each with the
-- moment from which on nobody is behind it any more. token: that of the last grant.
local lock = packed and cmsgpack.unpack(packed) or {mode = 'r', held = {}, line = {}, token = 0}

local held = 0
for id, one in pairs(lock.held) do
  if one[1] <= now then lock.held[id] = nil else held = held + 1 end
end
local line = {}
for _, one in ipairs(lock.line) do
  if one[2] > now then line[#line + 1] = one end
end
lock.line = line

local function keep()
  local last = now
  for _, one in pairs(lock.held) do last = math.max(last, one[1]) end
  for _, one in ipairs(lock.line) do last = math.max(last, one[2]) end
  local left = math.ceil((last - now) / 1000) + KEPT
  redis.call('SET', KEYS[1], cmsgpack.pack(lock), 'PX', string.format('%.0f', left))
end

local steps = {}

-- Answers {1, 0}: granted; {0, n}: the n-th in line, 0: not in it; {2, 0}: the line is full.
function steps.acquire(id, mode, ttl, ticket, stays, most)
  local at = nil
  for i, one in ipairs(lock.line) do
    if one[1] == ticket then at = i end
  end
  local reads = lock.mode == 'r' and lock.held[id] ~= nil
  local free = held == 0 or (lock.mode == 'r' and (mode == 'r' or (reads and held == 1)))
  if free and (reads or #lock.line == 0 or at == 1) then
    if at then table.remove(lock.line, at) end
    lock.mode = mode
    lock.token = math.max(lock.token + 1, now)
    lock.held[id] = {now + tonumber(ttl), lock.token, ticket}
    keep()
    return {1, 0}
  end
  if tonumber(stays) == 0 then
    if at then
      table.remove(lock.line, at)
      keep()
    end
    return {0, 0}
  end
  if not at then
    if held + #lock.line >= tonumber(most) then return {2, 0} end
    at = #lock.line + 1
  end
  lock.line[at] = {ticket, now + tonumber(stays)}
  keep()
  return {0, at}
end

-- Of one who has gone: with it goes what it was granted and never told of.
function steps.leave(ticket)
  for i = #lock.line, 1, -1 do
    if lock.line[i][1] == ticket then table.remove(lock.line, i) end
  end
  for id, one in pairs(lock.held) do
    if one[3] == ticket then lock.held[id] = nil end
  end
  keep()
  return 1
end

function steps.release(id)
  if not lock.held[id] then return 0 end
  lock.held[id] = nil
  keep()
  return 1
end

function steps.release_all()
  if held == 0 then return 0 end
  lock.held = {}
  keep()
  return 1
end

function steps.prolong(id, ttl)
  if not lock.held[id] then return 0 end
  lock.held[id][1] = now + tonumber(ttl)
  keep()
  return 1
end

-- The token; 0: `id` holds none. Without an id: 1 where anybody holds one.
function steps.token(id)
  if id == '' then return held > 0 and 1 or 0 end
  return lock.held[id] and lock.held[id][2] or 0
end

return steps[ARGV[1]](unpack(ARGV, 2))
