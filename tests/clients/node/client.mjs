// One command of one client: client.mjs CLIENT BOOTSTRAP GROUP TOPIC COMMAND [ARGUMENT]; see tests/clients/test_clients.py.
const [client, bootstrap, group, topic, command, argument] = process.argv.slice(2)
const brokers = bootstrap.split(',')
const WAIT_MS = 12000

function tell(value) {
  process.stdout.write(JSON.stringify(value) + '\n', () => process.exit(0))
}

async function kafkajs() {
  const { Kafka, logLevel } = await import('kafkajs')
  const kafka = new Kafka({ clientId: 'c', brokers, logLevel: logLevel.NOTHING })
  const admin = kafka.admin()
  if (command === 'reset') {
    await admin.connect()
    await admin.resetOffsets({ groupId: group, topic, earliest: argument === 'start' })
    await admin.disconnect()
    return {}
  }
  if (command === 'transact') {
    const producer = kafka.producer({ transactionalId: `${group}-tx`, maxInFlightRequests: 1, idempotent: true })
    await producer.connect()
    const transaction = await producer.transaction()
    const topics = [{ topic, partitions: [{ partition: 0, offset: argument }] }]
    await transaction.sendOffsets({ consumerGroupId: group, topics })
    await transaction.commit()
    await producer.disconnect()
    return {}
  }
  const wanted = command === 'read' ? Number(argument) : 0
  const consumer = kafka.consumer({ groupId: group, rebalanceTimeout: 6000, sessionTimeout: 6000 })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const first = {}
  let read = 0
  let timer
  await new Promise((resolve, reject) => {
    timer = setTimeout(resolve, WAIT_MS)
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (command === 'where') {
          first[partition] ??= Number(message.offset)
          clearTimeout(timer)
          timer = setTimeout(resolve, 2000)
        } else if (read < wanted) {
          read += 1
          await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
          if (read === wanted) resolve()
        }
      },
    }).catch(reject)
  })
  clearTimeout(timer)
  await consumer.disconnect()
  return command === 'where' ? first : { read }
}

async function platformatic() {
  const { Consumer, Admin } = await import('@platformatic/kafka')
  const options = { clientId: 'c', bootstrapBrokers: brokers, groupId: group, autocommit: false, sessionTimeout: 6000, rebalanceTimeout: 6000, heartbeatInterval: 1000 }
  if (command === 'reset') {
    const admin = new Admin({ clientId: 'a', bootstrapBrokers: brokers })
    const { topics } = await admin.listOffsets({ topics: [{ name: topic, partitions: [{ partitionIndex: 0, timestamp: argument === 'start' ? -2n : -1n }] }] }).then(found => ({ topics: found }))
    const [one] = topics[0].partitions
    const offset = BigInt(one.offset)
    await admin.alterConsumerGroupOffsets({ groupId: group, topics: [{ name: topic, partitionOffsets: [{ partition: 0, offset }] }] })
    await admin.close()
    return {}
  }
  const consumer = new Consumer(options)
  const stream = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest', autocommit: false })
  const wanted = Number(argument)
  const first = {}
  let read = 0
  await new Promise((resolve, reject) => {
    let timer = setTimeout(resolve, WAIT_MS)
    stream.on('error', reject)
    stream.on('data', async message => {
      if (command === 'where') {
        first[message.partition] ??= Number(message.offset)
        clearTimeout(timer)
        timer = setTimeout(resolve, 2000)
      } else if (read < wanted) {
        read += 1
        await message.commit()
        if (read === wanted) setTimeout(resolve, 500)
      }
    })
  })
  await stream.close()
  await consumer.close(true)
  return command === 'where' ? first : { read }
}

;({ kafkajs, platformatic })[client]().then(tell, error => {
  process.stderr.write(`${error?.stack ?? error}\n`)
  process.exit(1)
})
